"""Resources as they are to be, and what whoever wants them is told."""

from collections.abc import Mapping
from enum import Enum

from msgspec import Struct, field

from locallb.engine.state.resource import PRESERVED_EXTRAS, ResourceState
from locallb.engine.state.urns import STACK_TYPE
from locallb.engine.state.values import Properties, Value


class Goal(Struct, frozen=True):
    """A resource as the program wants it.

    `delete_before_replace` is None when the program doesn't say. `timeouts` are seconds by operation (create, update,
    delete) for the provider.
    """

    type: str
    name: str
    custom: bool
    inputs: Properties
    parent: str = ""
    provider: str = ""
    version: str = ""
    dependencies: tuple[str, ...] = ()
    property_dependencies: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    delete_before_replace: bool | None = None
    timeouts: Mapping[str, Value] = field(default_factory=dict)

    @property
    def is_stack(self) -> bool:
        """Whether this is the Stack."""
        return self.type == STACK_TYPE

    def requirements(self) -> frozenset[str]:
        """Return the URNs of everything that it needs."""
        urns = {*self.dependencies, self.parent}
        for more in self.property_dependencies.values():
            urns.update(more)
        return frozenset(urns - {""})

    def state(self, urn: str, inputs: Properties, old: ResourceState | None) -> ResourceState:
        """Make the new state, without what only an operation can tell."""
        extras = {key: old.extras[key] for key in PRESERVED_EXTRAS if key in old.extras} if old else {}
        if self.timeouts:
            extras["customTimeouts"] = dict(self.timeouts)
        return ResourceState(
            urn=urn,
            type=self.type,
            custom=self.custom,
            inputs=inputs,
            parent=self.parent,
            dependencies=self.dependencies,
            property_dependencies=self.property_dependencies,
            created=old.created if old else "",
            modified=old.modified if old else "",
            extras=extras,
        )


class Outcome(Enum):
    """How a registration ended."""

    DONE = "done"
    FAILED = "failed"
    SKIPPED = "skipped"
    OUTSIDE = "outside"


class Reply(Struct, frozen=True):
    """What the program is told: outputs are empty unless the outcome is good."""

    urn: str
    outcome: Outcome = Outcome.DONE
    id: str = ""
    outputs: Properties = field(default_factory=dict)
