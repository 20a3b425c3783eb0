"""Which operations may run now: a lane for each outside party, so that one that hangs doesn't delay others.

Has no clock and no threads: every call passes the time, and returns what must begin. An operation over its deadline no
longer occupies its lane and isn't given up: it ends when it ends.
"""

import heapq
from collections import deque
from collections.abc import Callable

from msgspec import Struct, field

from locallb.engine.core.operations import Operation
from locallb.engine.state.resource import ResourceState

DEADLINE = 1.0
"""Seconds in which an operation counts against its lane."""
HANGING = 3
"""So many operations over their deadline stall a lane."""
TIMEOUT = 5.0
"""Seconds over their deadline after which whoever asks for parts isn't told to wait for a stalled lane any more."""
SLOW = 3.0
"""Seconds after which an operation over its deadline makes its party slow."""
FIRST_PROBE = 0.05
LONGEST_PROBE = 10.0


class Shape(Struct, frozen=True):
    """How much a lane bears at a time: so many operations, or batches of all that waits."""

    width: int = 4
    batch: bool = False
    deadline: float = DEADLINE
    """Seconds in which an operation occupies its place."""


def _own_lane(resource: ResourceState) -> str:
    return resource.urn


def _alike(_lane: str) -> Shape:
    return Shape()


class Parties(Struct, frozen=True):
    """For which outside party operations wait, and how much each one bears; by default each resource is one."""

    lane_of: Callable[[ResourceState], str] = _own_lane
    shape_of: Callable[[str], Shape] = _alike


class LateLane(Struct, frozen=True):
    """A lane whose party doesn't answer, or slowly."""

    lane: str
    since: float
    """When the oldest of its operations began."""
    urns: frozenset[str]
    """Resources of which an operation runs or waits there."""


class _Lane(Struct):
    shape: Shape
    waiting: deque[Operation] = field(default_factory=deque)
    slots: list[dict[int, Operation]] = field(default_factory=list)
    began: dict[int, float] = field(default_factory=dict)
    hanging: dict[int, Operation] = field(default_factory=dict)
    probes: int = 0
    probe_at: float = 0.0

    @property
    def is_stalled(self) -> bool:
        return len(self.hanging) >= HANGING

    def waits_since(self) -> float | None:
        """Return when the oldest operation began to which there is no answer; None if there is none.

        What began before the party answered others doesn't count.
        """
        return min((self.began[number] for slot in (*self.slots, self.hanging) for number in slot), default=None)

    def is_late(self, now: float, since: float) -> bool:
        return self.is_stalled or since + max(SLOW, self.shape.deadline) <= now

    def urns(self) -> frozenset[str]:
        running = (operation.urn for slot in (*self.slots, self.hanging) for operation in slot.values())
        return frozenset((*running, *(operation.urn for operation in self.waiting)))

    def begin(self, now: float, room: int | None) -> list[Operation]:
        """Take what may run now; a stalled lane gets one operation at a time, after a longer and longer time."""
        begun: list[Operation] = []
        while self.waiting and len(self.slots) < self.shape.width and (room is None or len(begun) < room):
            if self.is_stalled:
                if self.slots or now < self.probe_at:
                    break
                self.probe_at = now + min(LONGEST_PROBE, FIRST_PROBE * 2**self.probes)
                self.probes += 1
            several = self.shape.batch and not self.is_stalled
            number = len(self.waiting) if several else 1
            claimed = [
                self.waiting.popleft() for _ in range(number if room is None else min(number, room - len(begun)))
            ]
            self.slots.append({id(operation): operation for operation in claimed})
            self.began.update((id(operation), now) for operation in claimed)
            begun += claimed
        return begun

    def free_overdue(self, now: float) -> None:
        """Let operations over their deadline occupy nothing any more."""
        for slot in self.slots:
            for number in [number for number in slot if self.began[number] + self.shape.deadline <= now]:
                self.hanging[number] = slot.pop(number)
        self.slots = [slot for slot in self.slots if slot]

    def ended(self, operation: Operation) -> None:
        """Note an end; one in time shows that the party answers."""
        number = id(operation)
        self.began.pop(number, None)
        for slot in self.slots:
            if slot.pop(number, None):
                self.hanging.clear()
                self.probes = 0
        self.slots = [slot for slot in self.slots if slot]
        self.hanging.pop(number, None)


class Lanes:
    """All lanes, made when they are needed and forgotten when nothing of them is left."""

    def __init__(self, shape_of: Callable[[str], Shape] = _alike) -> None:
        self._shape_of = shape_of
        self._lanes: dict[str, _Lane] = {}
        self._ready: set[str] = set()
        """Lanes that may have something to begin, which are in `_queue` by name."""
        self._queue: list[str] = []
        self._due: list[tuple[float, str]] = []

    def submit(self, operation: Operation) -> None:
        """Let an operation wait for its turn."""
        name = operation.lane
        if name not in self._lanes:
            self._lanes[name] = _Lane(self._shape_of(name))
        self._lanes[name].waiting.append(operation)
        self._note_ready(name)

    def withdraw(self, operation: Operation) -> None:
        """Forget an operation that hasn't begun."""
        self._lanes[operation.lane].waiting.remove(operation)
        self._note_ready(operation.lane)

    def begin(self, now: float, room: int | None = None) -> list[Operation]:
        """Return what begins now, of all lanes at most so many; the rest begins when some have ended."""
        while self._due and self._due[0][0] <= now:
            name = heapq.heappop(self._due)[1]
            if lane := self._lanes.get(name):
                lane.free_overdue(now)
                self._note_ready(name)
        begun: list[Operation] = []
        while self._queue and (room is None or len(begun) < room):
            name = heapq.heappop(self._queue)
            self._ready.discard(name)
            begun += self._begin(name, self._lanes[name], now, None if room is None else room - len(begun))
            if len(begun) == room and name in self._lanes:  # it may have more
                self._note_ready(name)
        return begun

    def _note_ready(self, name: str) -> None:
        if name not in self._ready:
            self._ready.add(name)
            heapq.heappush(self._queue, name)

    def _begin(self, name: str, lane: _Lane, now: float, room: int | None) -> list[Operation]:
        begun = lane.begin(now, room)
        if begun:
            heapq.heappush(self._due, (now + lane.shape.deadline, name))
            heapq.heappush(self._due, (now + lane.shape.deadline + TIMEOUT, name))
        if lane.is_stalled and lane.waiting and lane.probe_at > now:
            heapq.heappush(self._due, (lane.probe_at, name))
        if not lane.waiting and not lane.began:
            del self._lanes[name]
        return begun

    def ended(self, operation: Operation) -> None:
        """Note that an operation has ended, however late."""
        self._lanes[operation.lane].ended(operation)
        self._note_ready(operation.lane)

    def next_change(self) -> float | None:
        """Return when time alone may let something begin."""
        return self._due[0][0] if self._due else None

    def refuse_waiting(self, now: float) -> list[Operation]:
        """Return what waits for a party that hasn't answered for long, and forget it."""
        refused: list[Operation] = []
        for name, lane in self._lanes.items():
            late = sum(lane.began[number] + lane.shape.deadline + TIMEOUT <= now for number in lane.hanging)
            if lane.waiting and late >= HANGING:
                refused += lane.waiting
                lane.waiting.clear()
                self._note_ready(name)
        return refused

    def late(self, now: float) -> list[LateLane]:
        """List the lanes that are stalled, or have an operation that takes long."""
        return [
            LateLane(name, since, lane.urns())
            for name, lane in self._lanes.items()
            if (since := lane.waits_since()) is not None and lane.is_late(now, since)
        ]
