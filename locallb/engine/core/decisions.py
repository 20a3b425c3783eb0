"""What is to happen next to one resource: nothing any more, an entry of the state, a wait, or an operation.

Creation follows what a resource needs as it is desired; deletion the references to it in the state, those of other
groups, of old instances and of operations under way included.
"""

from collections.abc import Callable
from typing import TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from locallb.engine.core.declared import Goal, Scope
from locallb.engine.core.desired_index import DesiredIndex
from locallb.engine.core.events import Op
from locallb.engine.core.operations import Adopted, Entered, Kind, Operation, ended, freed
from locallb.engine.core.provider_resources import ProviderResources
from locallb.engine.provider_handles import Difference, Handle
from locallb.engine.state.checkpoint import timestamp
from locallb.engine.state.errors import FullScopeNeeded, StepError, Unsupported
from locallb.engine.state.resource import Pending, ResourceState
from locallb.engine.state.stack_state import Drop, Mutation, Put, StackState, is_stack
from locallb.engine.state.urns import STACK_TYPE, is_provider, package_of, type_of
from locallb.engine.state.values import UNKNOWN, Properties, changes_between
from locallb.engine.store import Recorder


class Settled(Struct, frozen=True):
    """It is as desired once the state has these changes; `news` is what that means, if anything."""

    changes: tuple[Mutation, ...] = ()
    news: Entered | Adopted | None = None


class Waiting(Struct, frozen=True):
    """It waits for another resource, by URN."""

    on: str


class Absent(Struct, frozen=True):
    """It isn't there, and is outside the scope: neither it nor its dependents can be made."""


_REFUSED = {"protect": "protect", "retainOnDelete": "retain_on_delete"}
Decision: TypeAlias = Settled | Waiting | Absent | Operation


class Decider(Struct):
    """Decides for one resource after the other.

    `unsettled` are the URNs that aren't known to be as desired. `remaining` are the operations that an earlier run
    broke off, by URN, the oldest first.
    """

    project: str
    stack: str
    recorder: Recorder
    wanted: DesiredIndex
    providers: ProviderResources
    lane_of: Callable[[ResourceState], str]
    unsettled: dict[str, None]
    remaining: dict[str, list[Pending]]
    keeps_stack: bool = True
    spares: Callable[[ResourceState], bool] = lambda _resource: False
    """Whether what isn't desired, or a replacement left, is left alone."""
    is_partial: bool = False
    """Whether outputs of the Stack are added to those that it has, and what isn't desired waits for its root."""
    _replacements: dict[str, Difference] = field(default_factory=dict)
    """Why resources are deleted before their successors are made."""

    @property
    def scope(self) -> Scope:
        """What is to be as desired: the rest stays as it is."""
        return self.providers.scope

    @property
    def _snapshot(self) -> StackState:
        return self.recorder.snapshot

    def is_spared(self, urn: str) -> bool:
        """Return whether nothing is to be done about a resource that isn't desired."""
        live = self._snapshot.live.get(urn)
        return live is not None and not self.wanted.get(urn) and urn not in self.remaining and self.spares(live)

    def decide(self, urn: str) -> Decision:
        """Return the next step of a resource. Raises StepError, Unsupported."""
        if self.remaining.get(urn):
            return self._adopt(self.remaining[urn][0])
        old = self._snapshot.live.get(urn)
        if self.wanted.get(urn) is None:
            return self._unwanted(urn, old)
        is_own_provider = is_provider(type_of(urn))
        if not is_own_provider and not self.scope.covers(self.wanted.root_of(urn)):
            return Settled() if old else Absent()
        for needed in self.wanted.requirements(urn):
            is_missing = needed not in self._snapshot.live and not self.wanted.only_follows(urn, needed)
            if needed in self.unsettled or is_missing:
                return Waiting(needed)
        goal = self.wanted.goal(urn, self._snapshot.live)
        self._refuse_circle(urn, goal, old)
        if is_own_provider:
            self.providers.register(urn, goal)
            return Settled()
        return self._custom(urn, goal, old) if goal.custom else self._component(urn, goal, old)

    def decide_old(self, old: ResourceState) -> Decision:
        """Return the next step of what a replacement left, whose resource is settled. Raises StepError, Unsupported."""
        if on := self._user_of_old(old) or self._unsettled_siblings(old):
            return Waiting(on)
        if not old.custom or is_provider(old.type) or old.pending_replacement:
            refuse_options(old)
            return Settled(freed(self._snapshot, old), Entered(Op.DELETE_REPLACED, old))
        deletion = self._deletion(Kind.DELETE_OLD, old)
        live = self._snapshot.live.get(old.urn)
        if live and not live.pending_replacement and deletion.handle.is_same_thing(old, live):
            return Settled(freed(self._snapshot, old), Entered(Op.DELETE_REPLACED, old))  # as earlier versions noted it
        return deletion

    def stack_entry(self, outputs: Properties | None) -> Settled:
        """Return what gives the state the Stack, which is everything's ancestor, with its outputs if they are known.

        Those of what is outside the scope stay.
        """
        root = self.wanted.root
        old = self._snapshot.live.get(root)
        now = timestamp()
        goal = Goal(STACK_TYPE, f"{self.project}-{self.stack}", custom=False, inputs={})
        new = old or replace(goal.state(root, {}, None), created=now, modified=now)
        if outputs is not None:
            retained = {} if self.scope.is_full and not self.is_partial else new.outputs
            new = replace(new, outputs=dict(sorted({**retained, **outputs}.items())))
        op = Op.SAME if old else Op.CREATE
        return Settled(() if old and old.equals(new) else (Put(new),), Entered(op, new))

    # Desired resources

    def _component(self, urn: str, goal: Goal, old: ResourceState | None) -> Decision:
        outputs = self.wanted.outputs(urn, self._snapshot.live, self.unsettled)
        if outputs is None:  # its members come first, and need it
            outputs = dict(old.outputs) if old else {}
        new = replace(goal.state(urn, goal.inputs, old), outputs=outputs)
        before = old.inputs if old else {}
        if old is not None and dict(before) == dict(new.inputs):
            return _entry(old, new, Entered(Op.SAME, new))
        if old is None:
            now = timestamp()
            new = replace(new, created=now, modified=now)
        op = Op.UPDATE if old else Op.CREATE
        return _entry(old, new, Entered(op, new, changes_between(before, new.inputs)))

    def _custom(self, urn: str, goal: Goal, old: ResourceState | None) -> Decision:
        reference, handle = self.providers.provider_for(urn, goal)
        exists = old is not None and not old.pending_replacement
        inputs = handle.check(urn, old.inputs if old and exists else {}, goal.inputs)
        new = replace(goal.state(urn, inputs, old), provider=reference)
        lane = self.lane_of(new)
        if old is None or not exists:
            return Operation(Kind.CREATE, new, handle, lane, old, difference=self._replacements.pop(urn, None))
        difference = self.providers.compare(old, new, handle)
        if not difference.changes:
            new = replace(new, id=old.id, outputs=old.outputs)
            return _entry(old, new, Entered(Op.SAME, new))
        if not difference.replaces:
            return Operation(Kind.UPDATE, new, handle, lane, old, difference=difference)
        # A successor owes nothing to the old inputs: it is checked without them.
        renewed = replace(new, inputs=handle.check(urn, {}, goal.inputs))
        first = goal.delete_before_replace
        if difference.delete_before_replace if first is None else first:
            self._replacements[urn] = difference
            return self._delete_first(old, renewed, handle, lane)
        return Operation(Kind.CREATE, renewed, handle, lane, old, difference=difference)

    def _refuse_circle(self, urn: str, goal: Goal, old: ResourceState | None) -> None:
        """Refuse to refer to what refers to this resource, and is outside the scope: there it may have changed too."""
        if old is None or self.scope.is_full:
            return
        if urn in self._snapshot.needed_by(goal.requirements() - old.references):
            raise FullScopeNeeded(f"{urn} comes to need what still needs it outside the scope; update everything")

    def _delete_first(self, old: ResourceState, renewed: ResourceState, handle: Handle, lane: str) -> Decision:
        """Delete, one after the other, what can't stay without this resource, and then this."""
        for dependent in _dependents_to_replace(self._snapshot, old, self.providers):
            if not self.scope.covers(self._snapshot.root_of(dependent.urn)):
                what = f"{old.urn} must be deleted before it is created again, and {dependent.urn} outside the scope"
                raise StepError(f"{what} needs it; run an update of everything")
            deletion = self._deletion(Kind.DELETE_FIRST, dependent)
            deletion.prepare = lambda: handle.prepare(renewed)
            return deletion
        deletion = Operation(Kind.DELETE_FIRST, old, handle, lane, old)
        deletion.prepare = lambda: handle.prepare(renewed)
        return deletion

    # Unwanted resources

    def _unwanted(self, urn: str, old: ResourceState | None) -> Decision:
        if old is None or (is_stack(old) and self.keeps_stack):
            return Settled()
        if is_provider(old.type):
            return self._provider(old)
        if on := self._user_of(urn) or self._unsettled_siblings(old):
            return Waiting(on)
        if not old.custom or old.pending_replacement:
            refuse_options(old)
            return Settled((Drop(urn),), Entered(Op.DELETE, old))
        return self._deletion(Kind.DELETE, old)

    def _provider(self, old: ResourceState) -> Decision:
        """Keep a provider while something uses it, or is to."""
        if on := self._user_of(old.urn) or self._user_to_come(old):
            return Settled() if self.wanted.get(on) else Waiting(on)
        refuse_options(old)
        self.providers.forget(old.urn)
        return Settled((Drop(old.urn),), Entered(Op.DELETE, old))

    def _deletion(self, kind: Kind, old: ResourceState) -> Operation:
        refuse_options(old)
        return Operation(kind, old, self.providers.handle_of(old), self.lane_of(old), old)

    def _user_of(self, urn: str) -> str:
        """Return what still refers to a resource: live, old, or under way."""
        snapshot = self._snapshot
        if user := snapshot.first_user_of(urn):
            return user.urn
        others = (*snapshot.condemned.values(), *(operation.resource for operation in snapshot.pending.values()))
        return next((other.urn for other in others if other.urn != urn and urn in other.references), "")

    def _unsettled_siblings(self, old: ResourceState) -> str:
        """Return what of the same root isn't as desired, of parts: where that fails, it may use what is to go."""
        others = self.wanted.below(self._snapshot.root_of_any(old)) if self.is_partial else ()
        return next((urn for urn in others if urn in self.unsettled and urn != old.urn), "")

    def _user_to_come(self, provider: ResourceState) -> str:
        """Return a resource that isn't settled and may come to use a provider."""
        package = package_of(provider.type)
        coming = (urn for urn in self.unsettled if self.wanted.get(urn) is not None)
        return next((urn for urn in coming if package_of(type_of(urn)) == package), "")

    def _user_of_old(self, old: ResourceState) -> str:
        """Return what may still use an old instance, those aside that go only after it."""
        snapshot = self._snapshot
        if old.urn in self.unsettled and self.wanted.get(old.urn):
            return old.urn
        users = {user.urn for user in snapshot.users_of(old.urn) if user.urn in self.unsettled}
        users -= {*filter(self.is_spared, users)}
        users |= {one.urn for one in snapshot.condemned.values() if old.urn in one.references}
        users |= {one.resource.urn for one in snapshot.pending.values() if old.urn in one.resource.references}
        users.discard(old.urn)
        return min(users - self._needed_by(old), default="") if users else ""

    def _needed_by(self, old: ResourceState) -> set[str]:
        """Return what an old instance refers to, directly or not, by live resources and old instances alike."""
        snapshot = self._snapshot
        needed: set[str] = set()
        waiting = [*old.references]
        while waiting:
            urn = waiting.pop()
            if urn not in needed:
                needed.add(urn)
                named = (snapshot.live.get(urn), *(one for one in snapshot.condemned.values() if one.urn == urn))
                waiting += [used for one in named if one for used in one.references]
        return needed

    # Interrupted operations

    def _adopt(self, pending: Pending) -> Decision:
        """Find out what came of an operation that was broken off: make it again, or look."""
        live = self._snapshot.live.get(pending.resource.urn)
        if pending.kind != Kind.CREATE.value:
            is_it = live is not None and live.id == (pending.resource.id or live.id)
            if live is None or not is_it or not live.custom or live.pending_replacement:
                return Settled(ended(self._snapshot, pending), Adopted(pending))
            return Operation(Kind.INSPECT, live, self.providers.handle_of(live), self.lane_of(live), pending=pending)
        for needed in pending.resource.references:
            if any(one.kind == Kind.CREATE.value for one in self.remaining.get(needed, ())):
                return Waiting(needed)
        resource = self.providers.attach(pending.resource)
        handle = self.providers.handle_of(resource)
        if live is not None and not live.pending_replacement and not handle.diff(live, resource.inputs).replaces:
            return Settled(ended(self._snapshot, pending))  # another engine has made it since
        return Operation(Kind.FINISH, resource, handle, self.lane_of(resource), pending=pending)


def _entry(old: ResourceState | None, new: ResourceState, news: Entered) -> Settled:
    return Settled((), news) if old is not None and old.equals(new) else Settled((Put(new),), news)


def broken_off(snapshot: StackState, scope: Scope) -> dict[str, list[Pending]]:
    """Return what an earlier run broke off in the scope, by the resource that it is about, the oldest first."""
    grouped: dict[str, list[Pending]] = {}
    for _number, operation in sorted(snapshot.pending.items()):
        if scope.covers(snapshot.root_of_any(operation.resource)):
            grouped.setdefault(operation.resource.urn, []).append(operation)
    return grouped


def refuse_options(resource: ResourceState) -> None:
    """Raise Unsupported for a resource that mustn't be deleted, or only forgotten."""
    for name, option in _REFUSED.items():
        if resource.extras.get(name):
            raise Unsupported(f"deleting {resource.urn}, which has the resource option {option},")


def _dependents_to_replace(
    snapshot: StackState, old: ResourceState, providers: ProviderResources
) -> list[ResourceState]:
    """List the dependents that are deleted before a resource is created again, each before what it depends on.

    One goes if its provider would replace it, were the properties that come from the deleted resource unknown; one that
    merely waits for it (`depends_on`) stays.
    """
    doomed = {old.urn: old}
    dependents: list[ResourceState] = []
    for resource in _users_in_order(snapshot, old):
        if resource.custom and not resource.pending_replacement and _must_go(resource, doomed, providers):
            doomed[resource.urn] = resource
            dependents.append(resource)
    return dependents[::-1]


def _users_in_order(snapshot: StackState, old: ResourceState) -> list[ResourceState]:
    """List everything that depends on a resource, directly or not, dependencies first."""
    reached: dict[str, ResourceState] = {}
    waiting = [old]
    while waiting:
        for user in snapshot.users_of(waiting.pop().urn):
            if user.urn not in reached:
                reached[user.urn] = user
                waiting.append(user)
    return snapshot.sort(reached)


def _must_go(resource: ResourceState, doomed: dict[str, ResourceState], providers: ProviderResources) -> bool:
    if resource.property_dependencies is None:
        return any(urn in doomed for urn in resource.dependencies)
    lost = {key for key, urns in resource.property_dependencies.items() if any(urn in doomed for urn in urns)}
    if not lost:
        return False
    inputs = {key: UNKNOWN if key in lost else value for key, value in resource.inputs.items()}
    return bool(providers.handle_of(resource).diff(resource, inputs).replaces)
