"""How this host finds the names of a stack's zones: its resolver's files, and the blocks of zones in /etc/hosts. Pure.

The first resolver that takes zones gets a file for each; a host without one has the names themselves in /etc/hosts.

Not here: the steps that write them (`setup_plan`), and how a block stands in a text (`dns/stubs`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from ipaddress import ip_address

from locallb.dns.stubs import BEGINS, ENDS, block, block_in
from locallb.dns.zones import Zone, is_hostname, is_within, name_fault
from locallb.model.identities import IPAddress

RESOLVED = "/run/systemd/resolve/stub-resolv.conf"
"""Is there while systemd-resolved runs."""
RESOLVED_DIRECTORY = "/etc/systemd/resolved.conf.d"
DNSMASQ_DIRECTORY = "/etc/dnsmasq.d"
MACOS = "/System/Library/CoreServices/SystemVersion.plist"
"""Is there on macOS, which reads a file for each zone, named like it, and hears of changes by itself."""
MACOS_DIRECTORY = "/etc/resolver"
_SERVICES = {RESOLVED_DIRECTORY: "systemd-resolved", DNSMASQ_DIRECTORY: "dnsmasq"}
_MADE = "# Made by `locallb host setup`; `locallb host teardown` removes it."


def inspected(zones: Sequence[Zone]) -> tuple[str, ...]:
    """Return the paths that decide what is to be done."""
    directories = (*_SERVICES, MACOS_DIRECTORY)
    files = (path for directory in directories for path, _ in _files(zones, directory))
    return (RESOLVED, HOSTS, MACOS, *directories, *files) if zones else ()


def takes_zones(resolvers: Collection[str]) -> bool:
    """Return whether this host has a resolver with support for zones."""
    return RESOLVED in resolvers or MACOS in resolvers or DNSMASQ_DIRECTORY in resolvers


def resolver_files(zones: Sequence[Zone], resolvers: Mapping[str, str]) -> Mapping[str, str]:
    """Return the files that this host's resolver needs, for the first one that takes zones.

    The files for macOS follow its manual, resolver(5), and are untested.
    """
    if RESOLVED in resolvers:
        return dict(_files(zones, RESOLVED_DIRECTORY))
    if MACOS in resolvers:
        return dict(_files(zones, MACOS_DIRECTORY))
    return dict(_files(zones, DNSMASQ_DIRECTORY)) if DNSMASQ_DIRECTORY in resolvers else {}


def routing_files(name: str) -> Iterator[str]:
    """Return the files of which one is there where this host's resolver asks the stack's server for a name."""
    labels = name.split(".")
    zones = [".".join(labels[number:]) for number in range(len(labels))]
    yield from (_path(directory, zone) for directory in (*_SERVICES, MACOS_DIRECTORY) for zone in zones)


def resolver_notes(zones: Sequence[Zone], resolvers: Mapping[str, str]) -> Iterator[str]:
    if not zones:
        return
    servers = sorted({str(zone.server) for zone in zones})
    if not takes_zones(resolvers):
        names = ", ".join(zone.name for zone in zones)
        yield (
            f"this host has neither systemd-resolved nor {DNSMASQ_DIRECTORY}, so nothing routes {names} to"
            f" {' and '.join(servers)}: {HOSTS} has the names of now, no wildcards; run `locallb host setup --yes`"
            " again where they change, or install dnsmasq"
        )
    elif RESOLVED in resolvers and len(servers) > 1:
        yield (
            "systemd-resolved asks any of its servers for any of its zones, and this stack has"
            f" {' and '.join(servers)}: have one server answer for all zones"
        )


def restarted_by(path: str) -> str:
    """Return the service that reads a file only when it starts; empty for all other files."""
    return _SERVICES.get(path.rpartition("/")[0], "")


def restarting(paths: Collection[str]) -> str:
    """Return the command that makes services read these files, as a person would go on typing."""
    services = dict.fromkeys(filter(None, map(restarted_by, paths)))
    return "".join(f" && systemctl try-restart {service}" for service in services)


def _files(zones: Sequence[Zone], directory: str) -> Iterator[tuple[str, str]]:
    for zone in zones:
        if directory == RESOLVED_DIRECTORY:
            text = f"{_MADE}\n[Resolve]\nDNS={zone.server}\nDomains=~{zone.name}\n"
        elif directory == MACOS_DIRECTORY:
            text = f"{_MADE}\nnameserver {zone.server.address}\nport {zone.server.port}\n"
        else:
            place = f"{zone.server.address}#{zone.server.port}"
            text = f"{_MADE}\nserver=/{zone.name}/{place}\n"
        yield _path(directory, zone.name), text


def _path(directory: str, zone: str) -> str:
    return f"{directory}/{zone}" if directory == MACOS_DIRECTORY else f"{directory}/60-locallb-{zone}.conf"


HOSTS = "/etc/hosts"
Table = Mapping[str, Sequence[IPAddress]]


def read_names(shown: Iterable[str]) -> Table:
    """Read names as a state shows them, `web.test 127.77.0.1 ::1`; what can't stand in the file is left out."""
    return {name: addresses for name, addresses in map(_read, shown) if addresses}


def wanted_block(zone: str, names: Table) -> str:
    """Return the block of a zone; empty where it has no names.

    It has the names of the moment when it is written, and no wildcards.
    """
    own = sorted((address, name) for name in names if is_within(name, zone) for address in map(str, names[name]))
    lines = [f"{address} {name}" for address, name in own]
    return block(zone, lines)


def applies_to(text: str, name: str) -> bool:
    """Return whether a block of ours has a name."""
    labels = name.split(".")
    zones = (".".join(labels[number:]) for number in range(len(labels)))
    return any(f" {name}\n" in block_in(text, zone) for zone in zones)


def removing_command(zone: str) -> str:
    """Return what a person would type to take a zone's block out."""
    return f"sed -i '/^{BEGINS}{zone}/,/^{ENDS}{zone}$/d' {HOSTS}"


def _read(shown: str) -> tuple[str, tuple[IPAddress, ...]]:
    name, *targets = shown.split() or [""]
    usable = is_hostname(name) and not name_fault(name)
    return name, tuple(_addresses(targets)) if usable else ()


def _addresses(targets: Iterable[str]) -> Iterator[IPAddress]:
    for target in targets:
        try:
            yield ip_address(target)
        except ValueError:
            return
