"""Coalesced calls: simultaneous requests of several threads are answered by one call.

A call that has begun doesn't answer later requests, so an answer is never older than its request. Not here: the call
itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from threading import Event, Lock
from typing import Generic, TypeVar, cast

from msgspec import Struct

Question = TypeVar("Question")
Answer = TypeVar("Answer")
QUIET = 0.1
"""Seconds without another request after which expected callers are no longer waited for."""
LONGEST = 0.5
"""Maximum seconds that a call waits for expected callers."""


class _Ticket(Struct, Generic[Question, Answer], eq=False):
    """A question that waits, and how that ended."""

    question: Question
    answer: Answer | None = None
    error: Exception | None = None
    done: bool = False


class Joined(Generic[Question, Answer]):
    """Gives what waits to `serve`, which returns an answer for each, in order; if it fails it does so for all."""

    def __init__(self, serve: Callable[[Sequence[Question]], Sequence[Answer]]) -> None:
        self._serve = serve
        self._entrance = Lock()
        self._waiting: list[_Ticket[Question, Answer]] = []
        self._expected = 0
        self._complete = Event()
        """Set while no caller is expected that isn't waiting."""
        self._complete.set()
        self.turn = Lock()
        """Held while a call is under way."""

    def ask(self, question: Question) -> Answer:
        """Return the answer of a call that begins from now on. Raises what `serve` raises."""
        ticket = _Ticket[Question, Answer](question)
        with self._entrance:
            self._waiting.append(ticket)
            self._count()
        with self.turn:
            if not ticket.done:
                self._gather()
                self._answer(ticket)
        if ticket.error:
            raise ticket.error
        return cast("Answer", ticket.answer)

    def expect(self, number: int) -> None:
        """Make the next calls wait for that many callers, or until no more arrive; 0 and 1 don't wait."""
        with self._entrance:
            self._expected = number
            self._count()

    def _count(self) -> None:
        if len(self._waiting) >= self._expected or self._expected == 1:
            self._complete.set()
        else:
            self._complete.clear()

    def _gather(self) -> None:
        """Wait for expected callers as long as some arrive; missing ones are no longer expected afterwards."""
        waiting, until = 0, time.monotonic() + LONGEST
        while waiting < len(self._waiting) and time.monotonic() < until:
            waiting = len(self._waiting)
            if self._complete.wait(QUIET):
                return
        self.expect(0)

    def _answer(self, own: _Ticket[Question, Answer]) -> None:
        with self._entrance:
            claimed, self._waiting = self._waiting, []
            self._expected = max(0, self._expected - len(claimed))
            self._count()
        try:
            answers = self._serve([ticket.question for ticket in claimed])
            for ticket, answer in zip(claimed, answers, strict=True):
                ticket.answer, ticket.done = answer, True
        except Exception as error:  # noqa: BLE001 - it is everybody's who asked
            for ticket in claimed:
                ticket.error, ticket.done = error, True
        finally:
            remaining = [ticket for ticket in claimed if not ticket.done and ticket is not own]
            if remaining:  # this thread is told to end; the others ask again
                with self._entrance:
                    self._waiting = [*remaining, *self._waiting]
