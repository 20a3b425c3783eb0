"""Indexes of the desired resources by URN: what they need, who needs them, and their values once those are known.

Not here: what a resource is (`locallb.model.desired`).
"""

from collections.abc import Callable, Iterator, Mapping

from locallb.engine.core.declared import Goal
from locallb.engine.state.errors import EngineError, StepError
from locallb.engine.state.resource import ResourceState
from locallb.engine.state.urns import make_urn, package_of, split_reference, stack_urn
from locallb.engine.state.values import UNKNOWN, Properties, Value, has_unknown
from locallb.model.desired import DesiredResource as Resource
from locallb.model.desired import Group, OptionalRef, Ref, ResourceKey, references

Groups = Mapping[ResourceKey, Group]
Live = Mapping[str, ResourceState]


class DesiredIndex:
    """The desired resources by URN, with who needs them; `versions` are those of the packages that have some.

    In a preview outputs may be unknown, and so is what is made of them.
    """

    def __init__(self, project: str, stack: str, versions: Mapping[str, str], *, is_preview: bool = False) -> None:
        self._project = project
        self._stack = stack
        self._versions = versions
        self.is_preview = is_preview
        self.is_complete = True
        """Whether nothing else is desired."""
        self.root = stack_urn(project, stack)
        self._groups: Groups = {}
        self._by_key: dict[ResourceKey, Resource] = {}
        self._by_urn: dict[str, Resource] = {}
        self._followers: dict[ResourceKey, Resource] = {}
        self._urns: dict[ResourceKey, str] = {}
        self._requirements: dict[str, frozenset[str]] = {}
        self._reads: dict[str, frozenset[str]] = {}
        self._users: dict[str, dict[str, None]] = {}
        self._readers: dict[str, dict[str, None]] = {}

    def get(self, urn: str) -> object | None:
        """Return what is desired under this URN, to be compared with what was desired before."""
        return self._by_urn.get(urn)

    def urn_of(self, key: ResourceKey) -> str:
        return self._urns[key]

    def root_of(self, urn: str) -> str:
        """Return the URN of the topmost ancestor of a desired resource."""
        resource = self._by_urn[urn]
        while resource.parent:
            resource = self._by_key[resource.parent]
        return self._urns[resource.key]

    def requirements(self, urn: str) -> frozenset[str]:
        """Return what must be as desired before this one is made so."""
        return self._requirements[urn]

    def users(self, urn: str) -> tuple[str, ...]:
        """List the desired resources that need this one, or show its outputs."""
        return tuple(self._users.get(urn, ()))

    def below(self, root: str) -> Iterator[str]:
        """List the desired resources of a group, by the URN of its root."""
        if resource := self._by_urn.get(root):
            yield from (self._urns[one.key] for one in _members(self._groups.get(resource.key)))

    def only_follows(self, urn: str, other: str) -> bool:
        """Return whether a resource follows another one, and doesn't need it."""
        resource = self._by_urn[urn]
        return other in map(self._urn, self._followed(resource)) and other not in map(self._urn, resource.requirements)

    def readers(self, urn: str) -> tuple[str, ...]:
        """List the desired resources that have an output of this one."""
        return tuple(self._readers.get(urn, ()))

    def replace(self, groups: Groups) -> frozenset[str]:
        """Desire these groups from now on; give the URNs of what that concerns. Raises EngineError."""
        before = self._groups
        changed = [root for root, group in groups.items() if _differ(before.get(root), group)]
        changed += before.keys() - groups.keys()
        old = {one.key: one for root in changed for one in _members(self._groups.get(root))}
        new = [one for root in changed for one in _members(groups.get(root))]
        touched = {self._forget(key) for key in old}
        for resource in new:
            if resource.key in self._by_key:
                raise EngineError(f"{resource.key.type} '{resource.key.name}' is desired twice")
            self._by_key[resource.key] = resource
        touched |= {self._add(resource) for resource in new}
        added_or_removed = old.keys() ^ {resource.key for resource in new}
        following = self._followers.values() if added_or_removed else ()
        for resource in [one for one in following if added_or_removed.intersection(one.follows)]:
            self._forget(resource.key)
            self._by_key[resource.key] = resource
            touched.add(self._add(resource))
        self._groups = dict(groups)
        return frozenset(touched)

    def _forget(self, key: ResourceKey) -> str:
        urn = self._urns.pop(key)
        del self._by_key[key], self._by_urn[urn]
        self._followers.pop(key, None)
        for used in self._requirements.pop(urn):
            self._users[used].pop(urn, None)
        for read in self._reads.pop(urn):
            self._users[read].pop(urn, None)
            self._readers[read].pop(urn, None)
        return urn

    def _add(self, resource: Resource) -> str:
        urn = self._urn(resource.key)
        self._by_urn[urn] = resource
        self._requirements[urn] = frozenset(map(self._urn, (*resource.requirements, *self._followed(resource))))
        self._reads[urn] = frozenset(self._urn(ref.key) for ref in resource.references)
        for used in self._requirements[urn] | self._reads[urn]:
            self._users.setdefault(used, {})[urn] = None
        for read in self._reads[urn]:
            self._readers.setdefault(read, {})[urn] = None
        if resource.follows:
            self._followers[resource.key] = resource
        return urn

    def _followed(self, resource: Resource) -> Iterator[ResourceKey]:
        return (key for key in resource.follows if key in self._by_key)

    def _urn(self, key: ResourceKey) -> str:
        if key not in self._urns:
            resource = self._by_key.get(key)
            if resource is None:
                raise EngineError(f"{key.type} '{key.name}' is needed and isn't desired")
            parent = self._urn(resource.parent) if resource.parent else ""
            self._urns[key] = make_urn(self._stack, self._project, parent, key.type, key.name)
        return self._urns[key]

    def goal(self, urn: str, live: Live) -> Goal:
        """Return a resource as a program would register it, its references resolved. Raises StepError."""
        resource = self._by_urn[urn]
        names = sorted(resource.inputs)
        used = {name: sorted({self._urns[key] for key in _read(resource.inputs[name])}) for name in names}
        needs = {
            *(self._urns[key] for key in resource.needs),
            *(urn for key in self._followed(resource) if (urn := self._urns[key]) in live),
            *(one for several in used.values() for one in several),
        }
        return Goal(
            type=resource.key.type,
            name=resource.key.name,
            custom=resource.outputs is None,
            inputs={name: self._value(resource.inputs[name], live) for name in names},
            parent=self._urns[resource.parent] if resource.parent else self.root,
            version=self._versions.get(package_of(resource.key.type), ""),
            dependencies=tuple(sorted(needs)),
            property_dependencies={name: tuple(used[name]) for name in names},
        )

    def outputs(self, urn: str, live: Live, unsettled: Mapping[str, None]) -> dict[str, Value] | None:
        """Return a component's outputs, None while what they show isn't there as desired. Raises StepError."""
        outputs = self._by_urn[urn].outputs or {}
        if any(self._urns[key] in unsettled or self._urns[key] not in live for key in _read(outputs)):
            return None
        return {name: self._value(outputs[name], live) for name in sorted(outputs)}

    def _value(self, value: object, live: Live) -> Value:
        return _resolved(value, lambda ref: self._output(ref, live[self._urns[ref.key]]))

    def _output(self, ref: Ref, of: ResourceState) -> Value:
        blank = dict.fromkeys(ref.fields if isinstance(ref, OptionalRef) else (), "")
        existing = {**blank, **of.inputs, **of.outputs, "id": of.id}
        if self.is_preview and any(has_unknown(existing.get(field, UNKNOWN)) for field in ref.fields):
            return UNKNOWN
        if missing := [field for field in ref.fields if field not in existing]:
            raise StepError(f"{of.urn} has no output {missing[0]}")
        value = ref.value(*(existing[field] for field in ref.fields))
        return self._value(value, {})


class Goals(DesiredIndex):
    """The registered resources by URN, in place of groups; nothing is known of the others until it is complete."""

    def __init__(self, project: str, stack: str, *, is_preview: bool) -> None:
        super().__init__(project, stack, {}, is_preview=is_preview)
        self.is_complete = False
        self._goals: dict[str, Goal] = {}
        self._outputs: dict[str, dict[str, Value]] = {}

    def add(self, goal: Goal) -> str:
        """Desire one more resource; give its URN. Raises EngineError."""
        urn = make_urn(self._stack, self._project, goal.parent, goal.type, goal.name)
        if urn in self._goals:
            raise EngineError(f"Duplicate resource URN '{urn}'; try giving it a unique name")
        self._goals[urn] = goal
        provider, _ = split_reference(goal.provider)
        self._requirements[urn] = goal.requirements() - {self.root} | ({provider} & self._goals.keys())
        return urn

    def set_outputs(self, urn: str, outputs: Properties) -> None:
        """Set the outputs of a component."""
        self._outputs[urn] = dict(outputs)

    def get(self, urn: str) -> Goal | None:
        """Return what was registered under this URN."""
        return self._goals.get(urn)

    def root_of(self, urn: str) -> str:
        """Return the URN of the topmost ancestor of a registered resource."""
        while (parent := self._goals[urn].parent) in self._goals:
            urn = parent
        return urn

    def only_follows(self, urn: str, other: str) -> bool:
        """Return False: a program registers only what a resource needs."""
        del urn, other
        return False

    def goal(self, urn: str, live: Live) -> Goal:
        """Return a resource as it was registered. Raises StepError where it can't be made of what is known."""
        del live
        goal = self._goals[urn]
        if not self.is_preview and has_unknown(dict(goal.inputs)):
            raise StepError(f"{urn} has an input whose value isn't known; what it depends on failed or is left out")
        return goal

    def outputs(self, urn: str, live: Live, unsettled: Mapping[str, None]) -> dict[str, Value] | None:
        """Return a component's outputs; until they are registered the former ones, if its inputs are as before."""
        del unsettled
        if urn in self._outputs:
            return self._outputs[urn]
        old = live.get(urn)
        return dict(old.outputs) if old and dict(old.inputs) == dict(self._goals[urn].inputs) else {}


def plain(values: Mapping[str, object]) -> dict[str, Value]:
    """Return values as a state has them. Raises StepError."""
    return {name: _resolved(values[name], _refuse) for name in sorted(values)}


def _resolved(value: object, output: Callable[[Ref], Value]) -> Value:
    if isinstance(value, Ref):
        return output(value)
    if isinstance(value, Mapping):
        return {str(name): _resolved(value[name], output) for name in sorted(value)}
    if isinstance(value, list | tuple):
        return [_resolved(item, output) for item in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise StepError(f"a value of the type {type(value).__name__} can't be in a state")


def _refuse(ref: Ref) -> Value:
    raise StepError(f"an output of {ref.key.name} can't be exported")


def _differ(one: Group | None, other: Group | None) -> bool:
    return one is not other and one != other


def _members(group: Group | None) -> tuple[Resource, ...]:
    return group.members if group else ()


def _read(value: object) -> Iterator[ResourceKey]:
    return (ref.key for ref in references(value))
