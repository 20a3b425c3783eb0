"""Warnings about objects, held back until the problem that they report has lasted.

A new Service with EndpointSlices that come a moment later, a rollout, a proxy that is replaced: all of it is well again
within a second, and nothing has to be reported. Not here: which events an object has (`kubernetes.events`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from threading import Condition

from msgspec import Struct

from locallb.model.identities import Owner
from locallb.model.status_entries import Event
from locallb.threads.supervised import Task, do_once

LASTING = 1.5
"""Seconds until a problem's Warning is sent: a recovery within one second is known by then."""


class _Held(Struct, frozen=True):
    due: float
    send: Callable[[], None]


class HeldWarnings:
    """Warnings by the object that they are about. Safe to use from several threads."""

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        start: Callable[[Callable[[], None]], None] = lambda work: do_once(Task.EVENT, "held warnings", work),
    ) -> None:
        self._clock = clock
        self._start = start
        self._changed = Condition()
        self._held: dict[Owner, dict[Event, _Held]] = {}
        self._is_running = False

    def hold(self, owner: Owner, event: Event, send: Callable[[], None], not_before: float | None = None) -> None:
        """Send a Warning when its problem has lasted, or at `not_before`, unless it is withdrawn by then."""
        with self._changed:
            due = self._clock() + LASTING if not_before is None else not_before
            self._held.setdefault(owner, {})[event] = _Held(due, send)
            self._changed.notify()
            if self._is_running:
                return
            self._is_running = True
        self._start(self._run)

    def withdraw(self, owner: Owner, current: Collection[Event]) -> Mapping[Event, float]:
        """Drop the Warnings of an object that aren't among its current ones; return when each would have been sent."""
        with self._changed:
            held = self._held.get(owner, {})
            withdrawn = {event: held.pop(event).due for event in held.keys() - set(current)}
            if not held:
                self._held.pop(owner, None)
            return withdrawn

    def send_due(self) -> None:
        """Send what is due."""
        with self._changed:
            due = self._take_due()
        for send in due:
            send()

    def _take_due(self) -> list[Callable[[], None]]:
        now, due = self._clock(), list[Callable[[], None]]()
        for owner, held in tuple(self._held.items()):
            due += [held.pop(event).send for event, each in tuple(held.items()) if each.due <= now]
            if not held:
                del self._held[owner]
        return due

    def _run(self) -> None:
        """Send each Warning when it is due, until none is held."""
        try:
            while self._wait():
                self.send_due()
        except BaseException:
            self._is_running = False
            raise

    def _wait(self) -> bool:
        """Wait until a Warning may be due; return False, and end, if none is held."""
        with self._changed:
            moments = [each.due for held in self._held.values() for each in held.values()]
            if moments:
                self._changed.wait(max(0.0, min(moments) - self._clock()))
            self._is_running = bool(moments)
            return self._is_running


HELD_WARNINGS = HeldWarnings()
"""Of this process."""
