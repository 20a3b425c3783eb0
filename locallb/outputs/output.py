"""The interface of an output: which load balancers it publishes, and the resources that do.

Not here: whether the load balancer serves (`provider.reachable`), and how a status is written
(`kubernetes.status`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, cast

from msgspec import Struct, field
from msgspec.structs import replace

from locallb.config.registry import OUTPUTS
from locallb.model.desired import REACHABLE, OptionalRef, ResourceKey
from locallb.model.desired import DesiredResource as Resource
from locallb.planning.planned import Placement, Plan, Rejection
from locallb.resources.resource_type import ResourceType

Planned = Placement | Rejection


class OutputContext(Struct, frozen=True):
    """Where the resources of an output belong, and what comes before them."""

    parent: ResourceKey
    ready: tuple[ResourceKey, ...] = ()
    """Resources that must exist before anything is published."""
    published: Mapping[str, ResourceKey] = field(default_factory=dict)
    """The last resource of each output that publishes before, by its word."""


def waiting_for(planned: Planned) -> OptionalRef:
    """Refer to what the proof of a load balancer waits for before it is known to serve; empty once it is."""
    return OptionalRef(ResourceKey(REACHABLE, str(planned.key)), ("waiting",))


class Output(ABC):
    """One way to publish."""

    resource_types: tuple[type[ResourceType[Any, Any]], ...] = ()
    """Types of our provider that it desires."""
    polled: frozenset[str] = frozenset()
    """Type tokens of resources that others can change without an event that reports it."""

    @abstractmethod
    def resources(self, planned: Planned, context: OutputContext) -> Sequence[Resource]:
        """Return the resources that publish it, the last of all last; none where this output doesn't."""

    def stamp(self, plan: Plan) -> object:
        """Return a value that changes once others may have changed published data; None if files report changes."""
        del plan
        return None


@cache
def output(word: str) -> Output:
    return cast("Output", OUTPUTS.load(word, "output"))


@cache
def outputs() -> Mapping[str, Output]:
    """Return all of them, in the order in which they publish."""
    return {word: output(word) for word in OUTPUTS}


def published(planned: Planned, context: OutputContext) -> tuple[Resource, ...]:
    found: list[Resource] = []
    last = dict(context.published)
    for word, output in outputs().items():
        if resources := output.resources(planned, replace(context, published=dict(last))):
            last[word] = resources[-1].key
            found += resources
    return tuple(found)
