"""The types of host setup: a step, its former value, the host's present state; and how steps are written. Pure.

Commands are printed as a person would type them. For a host with a resolver that takes no zones, there is the text of a
block in /etc/hosts for each zone.

Not here: which steps there are (`setup_plan`), their execution (`setup_changes`), and blocks in texts (`dns/stubs`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from ipaddress import ip_address
from types import MappingProxyType

from msgspec import Struct, field

from locallb.dns.stubs import BEGINS, ENDS, block, block_in
from locallb.dns.zones import Zone, is_hostname, is_within, name_fault
from locallb.host.macos import PoolAlias
from locallb.model.identities import IPAddress
from locallb.model.reasons import Problem
from locallb.planning.pool_routes import PoolRoute

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


PRESENT = "directory"
"""What stands for a directory that exists."""


class StepKind(StrEnum):
    """What a step changes."""

    SYSCTL = "sysctl"
    LEDGER = "ledger"
    ROUTE = "route"
    ALIAS = "alias"
    """An address of lo0, on macOS."""
    DIRECTORY = "directory"
    FILE = "file"
    LINK = "link"
    HOSTS = "hosts"
    """The block of a zone in /etc/hosts."""


class SetupStep(Struct, frozen=True):
    """One change of the host. `now` is empty if nothing exists, `wanted` if nothing must remain."""

    sort: StepKind
    what: str
    """The sysctl's name, the prefix, the path, or the zone."""
    now: str
    wanted: str
    why: str
    command: str
    group: int = 0
    """The ledger's group id."""
    optional: bool = False
    """Done only with `--persist`, which was not requested yet."""

    @property
    def done(self) -> bool:
        """Nothing is left to do."""
        return self.now == self.wanted


class Retained(Struct, frozen=True):
    """A value that setup changed: what it found (empty: nothing) and what it put there."""

    found: str
    made: str


class SetupRecord(Struct, frozen=True):
    """What setup changed on this host, by sort and name, in the order in which it did."""

    changes: Mapping[tuple[StepKind, str], Retained] = field(default_factory=lambda: MappingProxyType({}))


class ObservedHost(Struct, frozen=True):
    """What the host is like now."""

    sysctls: Mapping[str, int]
    """Current values; a name is missing where this kernel has none."""
    routes: Sequence[PoolRoute]
    ledger: str
    """Mode and group of the ledger's directory as `describe_ledger` writes them, empty where there is none."""
    texts: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Contents of files, targets of links, PRESENT for directories; missing where there is none."""
    group: int = 0
    """Group of the shared ledger."""
    ip_command: str = ""
    """Path of `ip`, for the unit; empty where it isn't installed."""
    record: SetupRecord = field(default_factory=SetupRecord)
    zones: Sequence[Zone] = ()
    """Zones of the stack, which this host's resolver must know."""
    names: Table = field(default_factory=lambda: MappingProxyType({}))
    """Current addresses of names, for a host with a resolver that takes no zones."""
    aliases: Sequence[PoolAlias] = ()
    """On macOS, in place of routes."""
    alias_notes: Sequence[str] = ()


class Setup(Struct, frozen=True):
    """The steps, done ones among them, what forbids all of it, and what to mind."""

    steps: tuple[SetupStep, ...]
    problems: tuple[Problem, ...] = ()
    notes: tuple[str, ...] = ()


def printed(text: str, where: str) -> str:
    lines = " ".join(f"'{line}'" for line in text.splitlines())
    return f"printf '%s\\n' {lines} {where}"


def directory_step(observed: ObservedHost, path: str) -> Iterator[SetupStep]:
    """Make a directory that is missing."""
    if path not in observed.texts:
        yield SetupStep(StepKind.DIRECTORY, path, "", PRESENT, "the next file goes there", f"mkdir -p {path}")


def file_step(observed: ObservedHost, path: str, text: str, why: str) -> SetupStep:
    return SetupStep(StepKind.FILE, path, observed.texts.get(path, ""), text, why, printed(text, f">{path}"))
