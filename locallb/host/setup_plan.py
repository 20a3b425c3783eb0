"""Plans `locallb host setup` and `teardown`: steps as data, from the host's present state and the record. Pure.

Each step has its subject, the present and the wanted value, the reason, and the command that a person would type. Setup
lifts limits, makes the ledger, gives this host the addresses of pools, and has its resolver ask the servers of a
stack's zones; teardown restores the former state.

A project's configuration and state decide which routes, zones and names root makes. Private networks, and domains that
are reserved for local use, hide nothing of the internet; any other may. So public names and public addresses,
and likewise changes for another user, are made only if the caller names them (`Consent`).

Not here: how a step is carried out (`setup_changes`), the types of steps (`setup_steps`), the files of resolvers and
the text of /etc/hosts (`resolvers`), and the routes that a pool may not break (`planning/pool_routes`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from ipaddress import ip_address, ip_network

from msgspec import Struct
from msgspec.structs import replace

from locallb.certificates.local import DOMAINS
from locallb.dns.stubs import block_in
from locallb.dns.zones import is_within
from locallb.host.macos import DEVICE, PoolAlias, removing
from locallb.host.resolvers import (
    HOSTS,
    removing_command,
    resolver_files,
    resolver_notes,
    restarting,
    takes_zones,
    wanted_block,
)
from locallb.host.setup_steps import (
    ObservedHost,
    Retained,
    Setup,
    SetupRecord,
    SetupStep,
    StepKind,
    directory_step,
    file_step,
    printed,
)
from locallb.model.identities import IPNetwork
from locallb.model.ranges import AddressRange
from locallb.model.reasons import Problem, Reason
from locallb.model.routes import PROTOCOL, inside, is_public
from locallb.model.texts import few
from locallb.planning.pool_routes import PoolRoute


def resolver_steps(observed: ObservedHost) -> Iterator[SetupStep]:
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


def _hosts(observed: ObservedHost) -> Iterator[SetupStep]:
    """Have /etc/hosts list the names of today, as the last resort: glibc alone knows neither zones nor ports."""
    for zone in observed.zones:
        present, wanted = block_in(observed.texts.get(HOSTS, ""), zone.name), wanted_block(zone.name, observed.names)
        removing = [removing_command(zone.name)] if present else []
        adding = [printed(wanted, f">>{HOSTS}")] if wanted else []
        why = f"this host finds the names below {zone.name} that there are now"
        if removing or adding:
            yield SetupStep(StepKind.HOSTS, zone.name, present, wanted, why, " && ".join([*removing, *adding]))


class SetupConsent(Struct, frozen=True):
    """What the caller named by options."""

    zones: frozenset[str] = frozenset()
    networks: tuple[IPNetwork, ...] = ()
    users: frozenset[str] = frozenset()
    """Other users that are permitted as beneficiaries, by name or number."""


def unnamed(observed: ObservedHost, consent: SetupConsent) -> Iterator[Problem]:
    """Return what would be changed and isn't named."""
    yield from _zones(observed, consent)
    new = [(route.pool, route.prefix) for route in observed.routes if not route.local and not route.problem]
    new += [(alias.pool, ip_network(alias.address)) for alias in observed.aliases if not alias.present]
    for pool, prefix in new:
        if not _may_be_ours(prefix, consent):
            yield Problem(
                Reason.NOT_NAMED,
                f"pool {pool}: {prefix} is public, and this host would no longer reach what the internet has there;"
                f" choose a private prefix in local-lb:pools, or name it: `--allow-network {prefix}`",
            )


def on_behalf(owner: str, names: Iterable[str], consent: SetupConsent) -> Iterator[Problem]:
    """Return the problem of changes for another user; `names` has what the caller may call that one."""
    if not consent.users.intersection(names):
        yield Problem(
            Reason.NOT_NAMED,
            f"the project belongs to {owner}, who would decide what root does here: if you trust that user with this"
            f" host, name the user: `--on-behalf-of {next(iter(names))}`",
        )


def _zones(observed: ObservedHost, consent: SetupConsent) -> Iterator[Problem]:
    for zone in observed.zones:
        if all(step.done for step in resolver_steps(replace(observed, zones=(zone,)))):
            continue
        if not any(is_within(zone.name, domain) for domain in (*DOMAINS, *consent.zones)):
            yield Problem(
                Reason.NOT_NAMED,
                f"zone {zone.name} isn't below {', '.join(DOMAINS)}, so this host would no longer find others' names"
                f" below it; choose another zone, or name it: `--allow-zone {zone.name}`",
            )
        if not takes_zones(observed.texts):
            yield from _names(observed, zone.name, consent)


def _names(observed: ObservedHost, zone: str, consent: SetupConsent) -> Iterator[Problem]:
    """Check the names that the state has, which are written to a file of the host."""
    public = {
        address: name
        for name, addresses in observed.names.items()
        if is_within(name, zone)
        for address in addresses
        if not _may_be_ours(ip_network(address), consent)
    }
    if public:
        shown = few([f"{name} to {address}" for address, name in public.items()])
        options = " ".join(f"--allow-network {ip_network(address)}" for address in public)
        yield Problem(Reason.NOT_NAMED, f"the state leads {shown}, which is public; name that: `{options}`")


def _may_be_ours(network: IPNetwork, consent: SetupConsent) -> bool:
    return any(inside(network, named) for named in consent.networks) or not is_public(
        AddressRange(network[0], network[-1])
    )


PORT_START = "net.ipv4.ip_unprivileged_port_start"
INSTANCES = "fs.inotify.max_user_instances"
WANTED_PORT_START, WANTED_INSTANCES = 0, 8192
LEDGER = "/var/lib/locallb/ledger"
SYSCTL_DIRECTORY = "/etc/sysctl.d"
SYSCTL_FILE = f"{SYSCTL_DIRECTORY}/60-locallb.conf"
UNIT_DIRECTORY = "/etc/systemd/system"
WANTS_DIRECTORY = f"{UNIT_DIRECTORY}/multi-user.target.wants"
UNIT_FILE = f"{UNIT_DIRECTORY}/locallb-routes.service"
UNIT_LINK = f"{WANTS_DIRECTORY}/locallb-routes.service"
MODE = 0o3775
"""Mode of the ledger: its group may add, all users may read, and only a claim's owner (or root) may remove it."""


def describe_ledger(mode: int, group: int) -> str:
    """Write mode and group of a directory."""
    return f"mode {mode:o} group {group}"


def plan_setup(observed: ObservedHost, *, persist: bool, status: bool = False) -> Setup:
    """Decide what is to be done so that this host lifts its limits and has the pools.

    For a `status` what makes it last beyond a boot is listed as well, as optional where nobody ever asked for it.
    """
    requested = persist or (status and any(sort is StepKind.FILE for sort, _ in observed.record.changes))
    routes = tuple(_route(route) for route in observed.routes if not route.problem)
    steps = [*_sysctls(observed), _ledger(observed), *routes, *map(_alias, observed.aliases), *resolver_steps(observed)]
    notes = [*resolver_notes(observed.zones, observed.texts), *observed.alias_notes]
    notes += [*dict.fromkeys(text for route in observed.routes for text in (route.warning, route.note) if text)]
    prefixes = _persistent_routes(observed)
    systemd = UNIT_DIRECTORY in observed.texts
    if requested or status:
        lasting = _persistence(observed, prefixes if systemd else ())
        steps += [replace(step, optional=not requested) for step in lasting]
    if requested:
        if prefixes and not systemd:
            notes.append(f"there is no {UNIT_DIRECTORY}: run `locallb host setup --yes` at every boot for the routes")
        elif prefixes and not observed.ip_command:
            notes.append("`ip` isn't installed (Debian: apt install iproute2): the unit will need it at the next boot")
    problems = tuple(dict.fromkeys(route.problem for route in observed.routes if route.problem))
    return Setup(tuple(steps), problems, tuple(notes))


def plan_teardown(record: SetupRecord, now: Mapping[tuple[StepKind, str], str], claims: int) -> Setup:
    """Plan the restoration of the former state, last change first; `now` has the current value of each change.

    A value that was changed again since is kept, and reported.
    """
    steps, notes = [], []
    for (sort, what), retained in reversed([*record.changes.items()]):
        current = now.get((sort, what), "")
        if sort is StepKind.LEDGER and claims and not retained.found:
            notes.append(f"{what} stays: {claims} addresses are claimed there; destroy those stacks first")
        elif current in {retained.made, retained.found}:
            steps.append(_undo(sort, what, current, retained))
        else:
            notes.append(
                f"{what} stays {current or 'absent'}: somebody changed it since (setup made it {retained.made})"
            )
    return Setup(tuple(steps), (), tuple(notes))


def _sysctls(observed: ObservedHost) -> Iterator[SetupStep]:
    wanted = {
        PORT_START: (WANTED_PORT_START, min, "proxies of ordinary users may serve ports such as 22, 53, 80 and 443"),
        INSTANCES: (WANTED_INSTANCES, max, "Envoy takes two inotify instances or more: this is how many proxies fit"),
    }
    for name, (value, better, why) in wanted.items():
        if (now := observed.sysctls.get(name)) is not None:
            aim = better(now, value)
            yield SetupStep(StepKind.SYSCTL, name, str(now), str(aim), why, f"sysctl -w {name}={aim}")


def _ledger(observed: ObservedHost) -> SetupStep:
    aim = describe_ledger(MODE, observed.group)
    why = "all users and stacks of this host see there who has which address"
    return SetupStep(
        StepKind.LEDGER,
        LEDGER,
        observed.ledger,
        aim,
        why,
        f"install -d -m {MODE:o} -g {observed.group} {LEDGER}",
        observed.group,
    )


def _route(route: PoolRoute) -> SetupStep:
    why = f"every address of pool {route.pool} becomes this host's own, for itself and for its containers"
    return SetupStep(
        StepKind.ROUTE, str(route.prefix), "local" if route.local else "", "local", why, route_command(route.prefix)
    )


def _alias(alias: PoolAlias) -> SetupStep:
    why = f"the address of pool {alias.pool} becomes this host's own"
    return SetupStep(StepKind.ALIAS, str(alias.address), DEVICE if alias.present else "", DEVICE, why, alias.command)


def route_command(prefix: IPNetwork) -> str:
    """Write the command that makes a prefix local."""
    return f"ip route add local {prefix} dev lo proto {PROTOCOL}"


def _persistent_routes(observed: ObservedHost) -> tuple[IPNetwork, ...]:
    """Return the prefixes that are ours to make at boot: made before, for other stacks too, and now."""
    made = [ip_network(what) for sort, what in observed.record.changes if sort is StepKind.ROUTE]
    new = [route.prefix for route in observed.routes if not route.problem and not route.local]
    return tuple(dict.fromkeys([*made, *new]))


def _persistence(observed: ObservedHost, prefixes: tuple[IPNetwork, ...]) -> Iterator[SetupStep]:
    yield from directory_step(observed, SYSCTL_DIRECTORY)
    yield file_step(observed, SYSCTL_FILE, _sysctl_text(observed), "the kernel's settings come back at boot")
    if prefixes:
        unit = _unit_text(observed.ip_command or "/usr/sbin/ip", prefixes)
        yield file_step(observed, UNIT_FILE, unit, "the routes come back at boot")
        yield from directory_step(observed, WANTS_DIRECTORY)
        command = f"ln -s {UNIT_FILE} {UNIT_LINK}"
        why = "the unit is started at boot (what `systemctl enable` does)"
        yield SetupStep(StepKind.LINK, UNIT_LINK, observed.texts.get(UNIT_LINK, ""), UNIT_FILE, why, command)


def _sysctl_text(observed: ObservedHost) -> str:
    lines = [f"{step.what} = {step.wanted}" for step in _sysctls(observed)]
    return "\n".join(["# Made by `locallb host setup --persist`; `locallb host teardown` removes it.", *lines, ""])


def _unit_text(ip: str, prefixes: Iterable[IPNetwork]) -> str:
    starts = [f"ExecStart={ip} route replace local {prefix} dev lo proto {PROTOCOL}" for prefix in prefixes]
    stops = [f"ExecStop=-{ip} route del local {prefix} dev lo proto {PROTOCOL}" for prefix in prefixes]
    return "\n".join(
        [
            "# Made by `locallb host setup --persist`; `locallb host teardown` removes it.",
            "[Unit]",
            "Description=Local routes of local-lb's address pools",
            "After=network-pre.target",
            "\n[Service]",
            "Type=oneshot",
            "RemainAfterExit=yes",
            *starts,
            *stops,
            "\n[Install]",
            "WantedBy=multi-user.target",
            "",
        ]
    )


def _undo(sort: StepKind, what: str, current: str, retained: Retained) -> SetupStep:
    commands = {
        StepKind.SYSCTL: f"sysctl -w {what}={retained.found}",
        StepKind.ROUTE: f"ip route del local {what} dev lo",
        StepKind.ALIAS: " ".join(removing(ip_address(what))) if sort is StepKind.ALIAS else "",
        StepKind.HOSTS: removing_command(what),
        StepKind.LEDGER: f"rmdir {what}" if not retained.found else f"chmod/chgrp {what} ({retained.found})",
    }
    restored = f"restore {what}" if retained.found else f"{'rmdir' if sort is StepKind.DIRECTORY else 'rm'} {what}"
    command = commands.get(sort, restored) + restarting([what])
    return SetupStep(sort, what, current, retained.found, "as it was found", command)
