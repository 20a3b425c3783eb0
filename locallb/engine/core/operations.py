"""Operations on one resource: what is called in a lane, what is noted before, what it changed in the state, and news.

News are reports of the core's work, in its own thread.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from locallb.engine.core.events import Op
from locallb.engine.provider_handles import Difference, Found, Handle
from locallb.engine.state.checkpoint import timestamp
from locallb.engine.state.errors import EngineError, StepError
from locallb.engine.state.resource import Pending, ResourceState
from locallb.engine.state.stack_state import Drop, End, Free, Mutation, Put, StackState, Supersede
from locallb.engine.state.values import UNKNOWN, PropertyChange


class Kind(Enum):
    """What is done with a resource; the value is the word of the state's pending operations."""

    CREATE = "creating"
    UPDATE = "updating"
    DELETE = "deleting"
    DELETE_FIRST = "deleting first"
    """Its successor is made afterwards."""
    DELETE_OLD = "deleting old"
    """What a replacement left."""
    FINISH = "finishing"
    """A creation that an earlier run began."""
    INSPECT = "looking"
    """Its update or deletion was begun by an earlier run."""


ADOPTING = frozenset((Kind.FINISH, Kind.INSPECT))
_MAKING = frozenset((Kind.CREATE, Kind.FINISH))
MAKING = frozenset((Kind.CREATE, Kind.UPDATE))
_DELETING = frozenset((Kind.DELETE, Kind.DELETE_FIRST, Kind.DELETE_OLD))

Made = tuple[str, dict[str, object]]


class Nothing(Struct, frozen=True):
    """A creation that an earlier run began left nothing, and can't be finished."""

    error: StepError


class Operation(Struct, eq=False):
    """One call of a provider.

    `subject` is the resource as it is to be, for a deletion and a look as it is. `pending` is what the state holds of
    the operation while it runs. `prepare` is what must succeed before a deletion for the sake of a successor. `old` is
    what a creation replaces, `difference` what the provider says about that.
    """

    kind: Kind
    subject: ResourceState
    handle: Handle
    lane: str
    old: ResourceState | None = None
    pending: Pending | None = None
    prepare: Callable[[], None] | None = None
    difference: Difference | None = None

    @property
    def urn(self) -> str:
        return self.subject.urn

    def noted(self) -> Pending:
        """Return what is written down before the call."""
        if self.pending is None:
            kind = Kind.DELETE if self.kind in _DELETING else self.kind
            subject = replace(self.subject, id="", outputs={}) if kind is Kind.UPDATE else self.subject
            self.pending = Pending(kind.value, subject)
        return self.pending

    def perform(self) -> object:
        """Call the provider, in a lane. Raises EngineError."""
        if self.kind is Kind.FINISH:
            return self._finish()
        if self.kind is Kind.CREATE:
            return self.handle.create(self.subject, preview=False)
        if self.kind is Kind.UPDATE and self.old is not None:
            return self.handle.update(self.old, self.subject, preview=False)
        if self.kind is Kind.INSPECT:
            return self.handle.read(self.subject)
        if self.prepare is not None:
            self.prepare()
        self.handle.delete(self.subject)
        return None

    def foresee(self) -> object:
        """Return what `perform` would give, as far as that is known; changes nothing. Raises EngineError."""
        if self.kind not in MAKING:
            return None
        can_plan = self.handle.can_plan()
        if self.kind is Kind.UPDATE and self.old is not None:
            return self.handle.update(self.old, self.subject, preview=True) if can_plan else dict(self.subject.inputs)
        identity, outputs = self.handle.create(self.subject, preview=True) if can_plan else ("", self.subject.inputs)
        return identity or UNKNOWN, dict(outputs)

    def _finish(self) -> object:
        """Make again what was begun; Nothing where nothing is left of it and it can't be made."""
        try:
            return self.handle.create(self.subject, preview=False)
        except StepError as error:
            if self._leaves_nothing():
                return Nothing(error)
            raise

    def _leaves_nothing(self) -> bool:
        try:
            return self.handle.leaves_nothing(self.subject)
        except StepError:
            return False

    def changes(self, answer: object, snapshot: StackState) -> tuple[Mutation, ...]:
        live = snapshot.live.get(self.urn)
        if self.kind in _MAKING:
            return self._made(answer, live, snapshot) if isinstance(answer, tuple) else ()
        if self.kind is Kind.UPDATE and isinstance(answer, dict) and self.old is not None:
            old, now = self.old, timestamp()
            return (Put(replace(self.subject, id=old.id, outputs=answer, created=old.created, modified=now)),)
        if self.kind is Kind.INSPECT:
            observed = answer if isinstance(answer, Found) else None
            return adopted(snapshot, self.subject, observed)
        if self.kind is Kind.DELETE_OLD:
            return freed(snapshot, self.subject)
        if self.kind is Kind.DELETE:
            return (Drop(self.urn),)
        return (Put(replace(live or self.subject, pending_replacement=True)),)

    def _made(self, answer: Made, live: ResourceState | None, snapshot: StackState) -> tuple[Mutation, ...]:
        now = timestamp()
        made = replace(self.subject, id=answer[0], outputs=answer[1], created=now, modified=now)
        retry = _adopted_instances(snapshot, made, self.handle)
        if live is None or live.pending_replacement:
            return (*retry, Put(made))
        return (*retry, Supersede(made, snapshot.take_number()))


def _adopted_instances(snapshot: StackState, made: ResourceState, provider: Handle) -> tuple[Free, ...]:
    """Forget the old instances that are what a creation made: the resource is again what it was before."""
    mine = [(number, old) for number, old in dict(snapshot.condemned).items() if old.urn == made.urn]
    return tuple(Free(number) for number, old in mine if provider.is_same_thing(old, made))


def adopted(snapshot: StackState, old: ResourceState, observed: Found | None) -> tuple[Mutation, ...]:
    """Return what brings the state up to what was seen of a resource."""
    if observed is None:
        return _forgotten(snapshot, old)
    current = snapshot.live.get(old.urn, old)  # a reference of it may be gone meanwhile
    new = replace(current, id=observed.id, inputs=observed.inputs or old.inputs, outputs=observed.outputs)
    if new.equals(current):
        return ()
    drifted = dict(observed.outputs) != dict(old.outputs)
    return (Put(replace(new, modified=timestamp()) if drifted else new),)


def _forgotten(snapshot: StackState, old: ResourceState) -> tuple[Mutation, ...]:
    """Drop a resource that is gone; one with children stays as an entry that has to be created again."""
    users = snapshot.users_of(old.urn)
    if any(user.parent == old.urn for user in users):
        return (Put(replace(old, pending_replacement=True)),)
    return (*(Put(user.without_reference(old.urn)) for user in users), Drop(old.urn))


def freed(snapshot: StackState, old: ResourceState) -> tuple[Free, ...]:
    return tuple(Free(number) for number, other in snapshot.condemned.items() if other is old)


def ended(snapshot: StackState, pending: Pending | None) -> tuple[End, ...]:
    """Note that an operation that was written down has ended, if one was."""
    return tuple(End(number) for number, other in snapshot.pending.items() if other is pending)


class OperationResult(Struct, frozen=True):
    """How an operation ended."""

    operation: Operation
    answer: object = None
    error: EngineError | None = None


def attempted(operation: Operation, perform: Callable[[], object]) -> OperationResult:
    """Perform an operation; what a provider refuses is an outcome like another."""
    try:
        return OperationResult(operation, perform())
    except EngineError as error:
        return OperationResult(operation, error=error)


class Begun(Struct, frozen=True):
    """An operation begins."""

    operation: Operation


class Entered(Struct, frozen=True):
    """A resource is settled without an operation: as an entry of the state, kept, made, changed or dropped."""

    op: Op
    resource: ResourceState
    changes: tuple[PropertyChange, ...] = ()


class Adopted(Struct, frozen=True):
    """An operation that an earlier run broke off needs nothing any more."""

    remaining: Pending


class Refused(Struct, frozen=True):
    """It can't be decided what is to be done with a resource, or with what an earlier run `remaining` of it."""

    urn: str
    error: EngineError
    remaining: Pending | None = None


News: TypeAlias = Begun | OperationResult | Entered | Adopted | Refused
