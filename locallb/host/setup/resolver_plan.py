"""Plans the configuration files by which this host's resolver, whichever it is, asks the servers of a stack's zones.

Pure. Those for macOS are as its manual has them (resolver(5)), and nobody has tried them. Not here: writing them
(`changes`), and glibc alone, which knows neither zones nor ports (`hosts_file`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from msgspec.structs import replace

from locallb.dns.blocks import block_in
from locallb.dns.zones import Zone
from locallb.host.setup.hosts_file import HOSTS, removing_command, wanted_block
from locallb.host.setup.steps import ObservedHost, Step, StepKind, directory_step, file_step, printed

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
    """Return the files that this host's resolver needs, for the first one that takes zones."""
    if RESOLVED in resolvers:
        return dict(_files(zones, RESOLVED_DIRECTORY))
    if MACOS in resolvers:
        return dict(_files(zones, MACOS_DIRECTORY))
    return dict(_files(zones, DNSMASQ_DIRECTORY)) if DNSMASQ_DIRECTORY in resolvers else {}


def resolver_steps(observed: ObservedHost) -> Iterator[Step]:
    """Have this host's resolver ask the servers of the zones; teardown removes the files."""
    if not takes_zones(observed.texts):
        yield from _hosts(observed)
        return
    files = resolver_files(observed.zones, observed.texts)
    for directory in dict.fromkeys(path.rpartition("/")[0] for path in files):
        yield from directory_step(observed, directory)
    for zone, (path, text) in zip(observed.zones, files.items(), strict=False):
        step = file_step(observed, path, text, f"this host's resolver asks {zone.server} for names below {zone.name}")
        yield replace(step, command=step.command + restarting([path]))


def _hosts(observed: ObservedHost) -> Iterator[Step]:
    """Have /etc/hosts tell the names of today, as the last resort."""
    for zone in observed.zones:
        present, wanted = block_in(observed.texts.get(HOSTS, ""), zone.name), wanted_block(zone.name, observed.names)
        removing = [removing_command(zone.name)] if present else []
        adding = [printed(wanted, f">>{HOSTS}")] if wanted else []
        why = f"this host finds the names below {zone.name} that there are now"
        if removing or adding:
            yield Step(StepKind.HOSTS, zone.name, present, wanted, why, " && ".join([*removing, *adding]))


def routing_files(name: str) -> Iterator[str]:
    """Return the files of which one is there where this host's resolver asks the stack's server for a name."""
    labels = name.split(".")
    zones = [".".join(labels[number:]) for number in range(len(labels))]
    yield from (_path(directory, zone) for directory in (*_SERVICES, MACOS_DIRECTORY) for zone in zones)


def resolver_notes(zones: Sequence[Zone], resolvers: Mapping[str, str]) -> Iterator[str]:
    """Return what to mind."""
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
