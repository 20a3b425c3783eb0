"""The planned part of a proxy's run: the pure half of a runtime.

Not here: starting, watching and ending runs (`runtimes.runtime`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, Protocol, cast

from msgspec import Struct

from locallb.config.registry import RUNTIMES
from locallb.config.settings import Settings
from locallb.model.desired import Ref, ResourceKey
from locallb.model.identities import IPAddress, ObjectKey, Owner
from locallb.model.identities import Protocol as Transport
from locallb.model.serving import Proxy
from locallb.model.snapshot import HostFacts

Place = tuple[IPAddress, int, Transport]
"""Where clients find a port."""


class PlannedRun(Protocol):
    """Parameters of one proxy's run. A different value means another run."""

    @property
    def runtime(self) -> str:
        """The word of the runtime."""

    @property
    def envoy(self) -> str:
        """The version of Envoy; empty where something else determines it, such as an image."""

    @property
    def container(self) -> str:
        """The name of its container; empty where it has none."""

    @property
    def reported(self) -> tuple[str, ...]:
        """Its description for a report."""

    @property
    def by_group(self) -> bool:
        """Whether it uses the proxy's directory by this user's group."""


class RunInputs(Struct, frozen=True):
    """Inputs of a run besides its proxy."""

    owner: Owner
    settings: Settings
    host: HostFacts
    addresses: tuple[IPAddress, ...] = ()
    """Addresses of the one Service that is served; none for a proxy of the stack."""
    places: Iterable[Place] = ()
    """Where its clients come, also while there are no backends."""


class DesiredRun(Struct, frozen=True):
    """The resource that is a run of Envoy."""

    key: ResourceKey
    inputs: Mapping[str, object]
    identity: Ref
    """Identity of this run; another run has to prove itself again."""
    container: Ref | None = None
    """Identity of its container, if it has a network of its own."""


class RunPlanner(Protocol):
    """The pure half of a runtime."""

    @property
    def token(self) -> str:
        """The type of the resource that is a run, in states of every version."""

    @property
    def makes_containers(self) -> bool:
        """Whether the keys of containers are for it."""

    def plan(self, proxy: Proxy, inputs: RunInputs) -> tuple[Proxy, PlannedRun]:
        """Return how `proxy` runs, and the proxy as it must be for that."""

    def desired(self, run: Any, proxy: Proxy, owner: Owner) -> DesiredRun:  # noqa: ANN401 - as `plan` returned it
        """Return the resource of a run, which serves what the proxy's configuration has."""

    def owner(self, declared: Mapping[str, object]) -> ObjectKey | None:
        """Return the owner of a declared run. Never raises."""

    def reported(self, declared: Mapping[str, object]) -> tuple[str, tuple[str, ...]]:
        """Return the version of Envoy and the details of a declared run, as `PlannedRun` has them."""


@cache
def run_planner(word: str) -> RunPlanner:
    """Return how a runtime plans."""
    return cast("RunPlanner", RUNTIMES.load(word, "planner"))


@cache
def run_types() -> Mapping[str, str]:
    """Return the runtime of each type of resource that is a run."""
    return {run_planner(word).token: word for word in RUNTIMES}
