"""The resources of a stack in memory: looked up, changed and put in order at a cost that follows the change.

A change is a *mutation*, a small frozen value that the journal can write and replay. The order of the resources is the
state file's: everything after what it refers to; old instances that wait for their deletion stand at the end.
"""

from collections.abc import Iterable, Iterator, Mapping
from threading import RLock
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from locallb.engine.state.errors import StateBroken
from locallb.engine.state.resource import Pending, ResourceState
from locallb.engine.state.urns import STACK_TYPE


class Put(Struct, frozen=True):
    """Add a resource, or set it again."""

    resource: ResourceState


class Supersede(Struct, frozen=True):
    """Set a resource again and keep the old instance, under a number, for its deletion."""

    resource: ResourceState
    number: int


class Drop(Struct, frozen=True):
    """Forget a resource."""

    urn: str


class Free(Struct, frozen=True):
    """Forget an old instance, by its number."""

    number: int


class Begin(Struct, frozen=True):
    """Note that an operation begins, under a number."""

    number: int
    operation: Pending


class End(Struct, frozen=True):
    """Note that the operation of this number ended."""

    number: int


Mutation: TypeAlias = Put | Supersede | Drop | Free | Begin | End


class StackState:
    """What the stack has: `live` resources by URN, old instances (`condemned`) and operations under way, by number."""

    def __init__(self, resources: Iterable[ResourceState] = (), pending: Iterable[Pending] = ()) -> None:
        self.live: dict[str, ResourceState] = {}
        self.condemned: dict[int, ResourceState] = {}
        self.pending: dict[int, Pending] = dict(enumerate(pending))
        self._users: dict[str, dict[str, None]] = {}
        self._position: dict[str, int] = {}
        self._sorted = True
        self._listed: tuple[ResourceState, ...] | None = None
        self._lock = RLock()
        self._clock = 0
        self.changes = 0
        """How many changes were applied."""
        self._next = len(self.pending)
        for resource in resources:
            if resource.delete:
                self.condemned[self.take_number()] = resource
            else:
                self._put(resource)

    def take_number(self) -> int:
        """Return a number for an operation or an old instance."""
        self._next += 1
        return self._next

    def renumber(self) -> None:
        """Give operations and old instances the numbers that reading gives: a journal is replayed on what is read."""
        with self._lock:
            self.pending = dict(enumerate(self.pending.values()))
            self._next = len(self.pending)
            self.condemned = {self.take_number(): resource for resource in self.condemned.values()}

    def copy(self) -> "StackState":
        """Make an independent copy, numbered as one that is read again, for a preview or a journal."""
        return StackState(self.in_order(), self.pending.values())

    def users_of(self, urn: str) -> tuple[ResourceState, ...]:
        """List the live resources that refer to this one, children included."""
        users = tuple(self._users.get(urn, ()))  # in one go: other threads may add some
        return tuple(resource for user in users if (resource := self.live.get(user)))

    def first_user_of(self, urn: str) -> ResourceState | None:
        """Return one of the live resources that refer to this one; while no other thread changes anything."""
        return next((resource for user in self._users.get(urn, ()) if (resource := self.live.get(user))), None)

    def root_of(self, urn: str) -> str:
        """Return the topmost ancestor below the Stack; the resource itself if it is one, or is unknown."""
        while (resource := self.live.get(urn)) and resource.parent and not is_stack(self.live.get(resource.parent)):
            urn = resource.parent
        return urn

    def root_of_any(self, resource: ResourceState) -> str:
        """Return the same of a resource that may be no live one: an old instance, or one that is being made."""
        below = resource.parent and not is_stack(self.live.get(resource.parent))
        return self.root_of(resource.parent if below and resource.urn not in self.live else resource.urn)

    def needed_by(self, urns: Iterable[str]) -> frozenset[str]:
        """Return live resources with all that they refer to, directly or not."""
        needed: set[str] = set()
        waiting = list(urns)
        while waiting:
            urn = waiting.pop()
            if urn not in needed and urn in self.live:
                needed.add(urn)
                waiting.extend(self.live[urn].references)
        return frozenset(needed)

    def members_of(self, roots: Iterable[str]) -> Iterator[ResourceState]:
        """List the live resources of these roots, parents first."""
        for root in roots:
            if root in self.live:
                yield self.live[root]
                yield from self.members_of(user.urn for user in self.users_of(root) if user.parent == root)

    def in_order(self) -> tuple[ResourceState, ...]:
        """List everything as the state file does; the identical list until something of it changes."""
        with self._lock:
            if self._listed is None:
                self._listed = (*self.in_order_live(), *self.condemned.values())
            return self._listed

    def in_order_live(self) -> list[ResourceState]:
        """List the live resources as the state file does."""
        with self._lock:
            if not self._sorted:
                self._sort()
            return list(self.live.values())

    def apply(self, mutation: Mutation) -> None:
        with self._lock:
            self._apply(mutation)
            self.changes += 1

    def _apply(self, mutation: Mutation) -> None:
        if not isinstance(mutation, Begin | End):
            self._listed = None
        match mutation:
            case Put(resource):
                self._put(resource)
            case Supersede(resource, number):
                self._condemn(self.live[resource.urn], number)
                self._put(resource)
            case Drop(urn):
                self._drop(urn)
            case Free(number):
                self.condemned.pop(number, None)
            case Begin(number, operation):
                self._next = max(self._next, number)
                self.pending[number] = operation
            case End(number):
                self.pending.pop(number, None)

    def _put(self, resource: ResourceState) -> None:
        urn = resource.urn
        self._forget_references(urn)
        self.live[urn] = resource
        if urn not in self._position:
            self._clock += 1
            self._position[urn] = self._clock
        here = self._position[urn]
        for used in resource.references:
            self._users.setdefault(used, {})[urn] = None
            if self._position.get(used, here) >= here:
                self._sorted = False

    def _condemn(self, resource: ResourceState, number: int) -> None:
        self._next = max(self._next, number)
        self.condemned[number] = replace(resource, delete=True, pending_replacement=False)

    def _drop(self, urn: str) -> None:
        self._forget_references(urn)
        self.live.pop(urn, None)
        self._position.pop(urn, None)
        self.pending = {
            n: operation
            for n, operation in self.pending.items()
            if operation.kind == "creating" or operation.resource.urn != urn
        }

    def _forget_references(self, urn: str) -> None:
        old = self.live.get(urn)
        for used in old.references if old else ():
            users = self._users[used]
            users.pop(urn, None)
            if not users:
                del self._users[used]

    def sort(self, some: Mapping[str, ResourceState]) -> list[ResourceState]:
        """Return some live resources in the state's order."""
        with self._lock:
            if not self._sorted:
                self._sort()
        return sorted(some.values(), key=lambda resource: self._position[resource.urn])

    def _sort(self) -> None:
        """Put each resource after what it refers to, and leave the order alone otherwise. Raises StateBroken."""
        ordered: dict[str, ResourceState] = {}
        begun: set[str] = set()
        for start in list(self.live):
            stack = [start]
            while stack:
                urn = stack[-1]
                missing = [u for u in self.live[urn].references if u in self.live and u not in ordered]
                if urn in ordered or not missing:
                    ordered.setdefault(urn, self.live[urn])
                    stack.pop()
                elif urn in begun:
                    raise StateBroken(f"{urn} and {missing[0]} refer to each other in a circle")
                else:
                    begun.add(urn)
                    stack.extend(sorted(missing, key=self._position.__getitem__, reverse=True))
        self.live, self._listed = ordered, None
        self._position = {urn: index for index, urn in enumerate(ordered)}
        self._clock = len(ordered)
        self._sorted = True


def is_stack(resource: ResourceState | None) -> bool:
    return resource is not None and resource.type == STACK_TYPE
