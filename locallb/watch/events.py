"""Events of the loop: frozen data for a log, for metrics, for a live view. They never influence it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import TypeAlias

from msgspec import Struct, field

from locallb.config.settings import Settings
from locallb.model.identities import ClusterName, ObjectKey
from locallb.model.snapshot import Snapshot
from locallb.planning.planned import Plan
from locallb.watch.delays import Delay


class Cause(StrEnum):
    """Why the loop looks again."""

    START = "start"
    SOURCE = "source"
    """A source has something new; the subject is its cluster."""
    PROXY = "proxy"
    """A proxy ended; the subject is its name or its id."""
    HANG = "hang"
    """A proxy hangs, or hangs no longer; the subject is its name."""
    HEALTH = "health"
    """Backends take connections, or take none any more."""
    RUNTIME = "runtime"
    """What proxies run in answers again: whatever happened to them meanwhile is unknown; the subject is the runtime."""
    CONFIGURATION = "configuration"
    """The stack's configuration is different, or everything is to be looked at as if it were."""
    KUBECONFIG = "kubeconfig"
    """The file that tells how a cluster is reached is different; the subject is the cluster."""
    FOUND_CLUSTERS = "found"
    """Which clusters a finder finds may be different; the subject is the one concerned, if it was one."""
    OVERRIDES = "orders"
    """An override for a Service began or ended."""
    ROUTES = "routes"
    """This host has other routes."""
    DRIFT = "drift"
    """Another process changed or removed our files; the subject is their load balancer."""
    SPARE = "spare"
    """Nothing has changed for a moment: there is time for spare proxies."""
    RETRY = "retry"
    FULL = "full pass"


class Mark(Struct, frozen=True, order=True):
    """Something may have changed."""

    cause: Cause
    subject: str = ""

    def __str__(self) -> str:
        return f"{self.cause} {self.subject}".rstrip()


class Planned(Struct, frozen=True):
    """The stack was planned again."""

    plan: Plan
    marks: tuple[Mark, ...]
    seconds: float
    """How long reading and planning took."""
    differing: tuple[ObjectKey, ...]
    """Load balancers that aren't as planned yet, as far as is known."""
    latency: float = 0.0
    """Seconds from the first mark to the plan."""
    snapshot: Snapshot | None = None
    """What the plan was made from."""
    settings: Settings | None = None
    stale: Mapping[ClusterName, str] = field(default_factory=dict)
    """Sources that count as last read, each with the sentence that says why."""
    complaints: tuple[str, ...] = ()
    """Sources that can't be read and count as last read, and whatever else isn't as it should be."""
    notices: tuple[str, ...] = ()
    unchecked: int = 0
    """Load balancers that are as planned if the state says true, which is to be checked."""


class Updated(Struct, frozen=True):
    """Some load balancers were updated, or checked and found as planned."""

    services: tuple[ObjectKey, ...]
    seconds: float
    """How long the update took."""
    latency: float
    """Seconds from the first mark to the end of the update."""
    changes: Mapping[str, int] = field(default_factory=dict)
    """Resources by operation."""
    failed: Mapping[ObjectKey, str] = field(default_factory=dict)
    """Reasons of failed ones, which are retried."""
    untouched: frozenset[ObjectKey] = frozenset()
    """Load balancers without a necessary change."""
    retries: Mapping[ObjectKey, float] = field(default_factory=dict)
    """When each failed one is tried again, in seconds since the epoch, as far as that is known."""


class Failed(Struct, frozen=True):
    """The stack couldn't be read, planned or updated as a whole: one sentence, reported at each attempt."""

    sentence: str
    kind: str = ""
    """What sort of thing it was: source, configuration, engine or host."""


class Converged(Struct, frozen=True):
    """Everything is as planned, as far as it can be; `waiting` load balancers are to be tried again."""

    waiting: int = 0


class Stopped(Struct, frozen=True):
    """The loop has ended; the data plane goes on."""


class Leading(Struct, frozen=True):
    """This process serves the stack from now on, or leaves that to another one."""

    leads: bool


class Broken(Struct, frozen=True):
    """An unexpected exception ended the work of a thread, which begins again by itself: one sentence."""

    task: str
    """What the thread is for."""
    sentence: str


class Pulse(Struct, frozen=True):
    """When the loop's thread was last seen to go on, by the monotonic clock, and whether it is at work."""

    at: float
    busy: bool = False


class Delayed(Struct, frozen=True):
    """Other outside parties than before don't answer, or other load balancers wait for them."""

    delays: tuple[Delay, ...]


class ProgramRan(Struct, frozen=True):
    """The stack's program, which says more than `serve()`, was run beside the loop."""

    program: str
    seconds: float
    changes: Mapping[str, int] = field(default_factory=dict)
    """Resources by operation."""
    fault: str = ""
    """Why not all of it was done; empty if all was."""


LoopEvent: TypeAlias = Planned | Updated | Failed | Converged | Leading | Broken | Delayed | ProgramRan | Stopped
Listener: TypeAlias = Callable[[LoopEvent], None]
