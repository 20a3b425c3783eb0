"""What a run of a command is to bring a stack to: resources as they are to be, of all or of some roots.

Inside a scope: registered, compared, deleted when absent. Outside: carried over as it is, still usable as parent and
dependency. The Stack and the providers belong to every scope; outputs of the Stack that a program doesn't export stay
unless the scope is everything.
"""

from collections.abc import Collection, Iterable, Mapping

from msgspec import Struct, field

from locallb.engine.core.events import Severity
from locallb.engine.state.resource import PRESERVED_EXTRAS, ResourceState
from locallb.engine.state.urns import STACK_TYPE
from locallb.engine.state.values import Properties, Value
from locallb.model.desired import Group


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


class Declared(Struct, frozen=True):
    """What a stack is to have, in place of what a program would register."""

    groups: Collection[Group]
    outputs: Mapping[str, Value] = field(default_factory=dict)
    """The Stack's."""
    versions: Mapping[str, str] = field(default_factory=dict)
    """Those of the packages whose providers have one."""
    remarks: tuple[tuple[Severity, str], ...] = ()
    """Sentences for the user; an error among them doesn't keep the rest from being done."""


class Scope(Struct, frozen=True):
    """The URNs of the root resources that an update is about; None stands for everything."""

    roots: frozenset[str] | None = None

    @property
    def is_full(self) -> bool:
        return self.roots is None

    def covers(self, root: str) -> bool:
        """Return whether a root resource is inside."""
        return self.roots is None or root in self.roots


EVERYTHING = Scope()


def only(roots: Iterable[str]) -> Scope:
    """Make a scope of some root resources, by URN (see `urns.root_urn`)."""
    return Scope(frozenset(roots))
