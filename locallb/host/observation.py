"""The types of the doctor's input and findings: frozen data, so that findings can be tested as tables."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from locallb.config.settings import Pool
from locallb.host.headroom import Limits
from locallb.model.snapshot import HostFacts
from locallb.planning.addresses.pool_routes import PoolRoute


class Level(StrEnum):
    """How much a finding matters."""

    OK = "ok"
    NOTE = "note"
    """Good to know; nothing to do."""
    WARNING = "warning"
    """Something can't be had, or soon can't."""
    PROBLEM = "problem"
    """Something doesn't work now."""


class Finding(Struct, frozen=True):
    """One line of the doctor's answer; `remedy` is empty where there is nothing to do."""

    level: Level
    topic: str
    text: str
    remedy: str = ""


class ObservedProxy(Struct, frozen=True):
    """A proxy's directory of this stack, and what runs in it."""

    name: str
    alive: bool
    answers: bool = True
    version: str = ""
    config_intact: bool = True
    """Its files are what local-lb wrote there."""


class ObservedLock(Struct, frozen=True):
    """A lock of the stack."""

    holder: str
    path: str
    removed: bool
    """Its process has ended."""


class ObservedName(Struct, frozen=True):
    """A name of the stack, what its zone's server answers (None: nothing), and what this host's resolver does."""

    name: str
    server: str
    by_server: frozenset[str] | None
    by_resolver: frozenset[str]


class HostInspection(Struct, frozen=True):
    """Everything that the doctor looks at, at one moment."""

    python: tuple[int, int]
    user: str
    envoy: str
    """Version of the installed Envoy; empty if there is none, then `envoy_problem` says why and what to do."""
    envoy_problem: str
    host: HostFacts
    limits: Limits
    pools: tuple[Pool, ...] = ()
    routes: tuple[PoolRoute, ...] = ()
    configuration_problems: tuple[str, ...] = ()
    source_problems: tuple[str, ...] = ()
    source_notices: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    """What was read and isn't served, and why."""
    sources: int = 0
    services: int = 0
    proxies: tuple[ObservedProxy, ...] = ()
    ledger: str = ""
    shared_ledger: str = ""
    """`usable`, `closed` (it exists, but this user may not write there) or empty: there is none."""
    claims: int = 0
    ledger_problems: tuple[str, ...] = ()
    ledger_keepers: tuple[int, ...] = ()
    """Processes that keep the ledger's lock."""
    leftovers: tuple[str, ...] = ()
    unclaimed: tuple[str, ...] = ()
    """Addresses that the state has and the ledger has not."""
    state: str = ""
    state_problems: tuple[str, ...] = ()
    locks: tuple[ObservedLock, ...] = ()
    docker: str = ""
    """`usable`, `closed` or empty."""
    docker_context_problem: str = ""
    """That the context which counts isn't there, and what to do."""
    docker_elsewhere: str = ""
    """Where Docker is, if that isn't looked at."""
    podman: tuple[tuple[str, str], ...] = ()
    """Sockets that may be Podman's, each `usable`, `closed` or empty."""
    image: str = ""
    """The image that the stack's containers are made from; empty for one without containers."""
    lacks_image: bool = False
    """It isn't there."""
    wsl: bool = False
    """This Linux runs in Windows."""
    mapped: bool = False
    """Services of the stack are ports of the loopback address."""
    disk_free: int = 1 << 40
    """Bytes free where proxies' directories are."""
    names: tuple[ObservedName, ...] = ()
    """One of each zone."""
    authority: str = ""
    """This user's own authority for certificates; empty where there is none."""
    doubting: tuple[str, ...] = ()
    """Who on this host doesn't believe it."""
    extra: tuple[Finding, ...] = ()
    """What could not even be looked at."""
