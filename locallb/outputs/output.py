"""The interface of an output: which load balancers it publishes, and the resource that does.

Not here: whether the load balancer serves (`provider.resources.reachable`), and how a kind of object is written
(`frontends`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, cast

from msgspec import Struct

from locallb.config.registry import OUTPUTS
from locallb.planning.planned import Placement, Plan, Rejection
from locallb.resources.resource_type import ResourceType

if TYPE_CHECKING:
    import pulumi

Planned = Placement | Rejection


class Telling(Struct, frozen=True):
    """One load balancer, or none, that is told of; and where in the program."""

    planned: Planned
    parent: pulumi.Resource
    ready: Sequence[pulumi.Resource]
    """What must be there before anything is published."""
    told: Mapping[str, pulumi.Resource]
    """The outputs that tell of it before, by their words."""


class Output(ABC):
    """One way to tell."""

    resource_types: tuple[type[ResourceType[Any, Any]], ...] = ()
    """Types of our provider that it declares."""
    looked_after: frozenset[str] = frozenset()
    """Tokens of those that others can change without an event that reports it."""

    @abstractmethod
    def words(self, planned: Planned) -> Sequence[object]:
        """Return all that its resource gets, as JSON-like values, for digests; nothing where it doesn't tell."""

    @abstractmethod
    def tells(self, planned: Planned) -> bool:
        """Return whether it tells of this one."""

    def stamp(self, plan: Plan) -> object:
        """Return what is another value once others may have changed what it told; None where files tell."""
        del plan
        return None

    @abstractmethod
    def declare(self, telling: Telling) -> pulumi.Resource:
        """Declare the resource that tells."""


@cache
def output(word: str) -> Output:
    """Return an output."""
    return cast("Output", OUTPUTS.load(word, "output"))


@cache
def outputs() -> Mapping[str, Output]:
    """Return all of them, in the order in which they tell."""
    return {word: output(word) for word in OUTPUTS}


def words(planned: Planned) -> list[object]:
    """Return what all outputs tell of one, for digests."""
    return [word for output in outputs().values() for word in output.words(planned)]


def tell(planned: Planned, parent: pulumi.Resource, ready: Sequence[pulumi.Resource]) -> None:
    """Declare whatever tells of one."""
    declared: dict[str, pulumi.Resource] = {}
    for word, output in outputs().items():
        if output.tells(planned):
            declared[word] = output.declare(Telling(planned, parent, ready, dict(declared)))
