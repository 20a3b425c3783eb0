"""A bounded queue from the loop's thread to its reporters, which never blocks the loop.

Bounded: where the reporter can't keep up (a paused terminal, a full pipe), the oldest events are dropped and counted.
Plans are large, so only the latest is kept.
"""

from __future__ import annotations

import time
from collections import deque
from threading import Condition

from msgspec import Struct
from msgspec.structs import replace

from locallb.planning.planned import Plan
from locallb.watch.events import LoopEvent, Planned

MAX = 1000
"""Events that may wait."""


class RelayedEvent(Struct, frozen=True):
    """An event, with only the sentences of its plan, and its time (seconds since the epoch)."""

    at: float
    event: LoopEvent


class EventBatch(Struct, frozen=True):
    """Events to report together."""

    entries: tuple[RelayedEvent, ...] = ()
    latest: Planned | None = None
    """The latest plan and what it was made from."""
    lost: int = 0
    """Events that went untold."""


class Relay:
    """One teller; `listen` and `poke` may be called from any thread."""

    def __init__(self, maximum: int = MAX) -> None:
        self._changed = Condition()
        self._waiting: deque[RelayedEvent] = deque()
        self._most = maximum
        self._latest: Planned | None = None
        self._lost = 0
        self._poked = False

    def listen(self, event: LoopEvent) -> None:
        entry = RelayedEvent(time.time(), event)
        if isinstance(event, Planned):
            slim = replace(event, plan=_sentences(event.plan), snapshot=None, settings=None)
            entry = RelayedEvent(entry.at, slim)
        with self._changed:
            if isinstance(event, Planned):
                self._latest = event
            if len(self._waiting) >= self._most:
                self._waiting.popleft()
                self._lost += 1
            self._waiting.append(entry)
            self._changed.notify_all()

    def poke(self) -> None:
        """Wake the reporter without an event: other displayed content has changed."""
        with self._changed:
            self._poked = True
            self._changed.notify_all()

    def wait(self) -> None:
        """Wait for something to report."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._poked)

    def take(self, seconds: float | None = None) -> EventBatch:
        """Wait for something to report, at most `seconds`."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._poked, seconds)
            batch = EventBatch(tuple(self._waiting), self._latest, self._lost)
            self._waiting.clear()
            self._lost, self._poked = 0, False
        return batch


def _sentences(plan: Plan) -> Plan:
    """Return the sentences of a plan, without the objects that it is made of."""
    return Plan(notices=plan.notices, straight=plan.straight, left_out=plan.left_out)
