"""The types of host setup: a step, its former value, the host's present state; and how steps are written. Pure.

Commands are printed as a person would type them. Not here: which steps there are (`setup_plan`), and their execution
(`setup_changes`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from types import MappingProxyType

from msgspec import Struct, field

from locallb.dns.zones import Zone
from locallb.host.macos import PoolAlias
from locallb.host.resolvers import Table
from locallb.model.reasons import Problem
from locallb.planning.pool_routes import PoolRoute

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
