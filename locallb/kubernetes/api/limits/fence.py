"""The fence of leader election: whether this process may still act, asked before each effect, without a request.

Without an election it always may; with one, only in its own term (monotonic). A process can sleep between the question
and the effect, so effects that can do better do: the ledger compares terms under its lock, and the API gets the
resourceVersion that was read before the question.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from locallb.kubernetes.lease import Term
from locallb.model.errors import ClientError


class NotLeaderError(ClientError):
    """This process isn't the leader, or no longer: one sentence."""


class Fence:
    """What an election says of this process. Safe to use from several threads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._ask: Callable[[], Term | None] | None = None

    def put(self, ask: Callable[[], Term | None] | None) -> None:
        """Let `ask` tell the term of this process; None: there is no election."""
        self._ask = ask

    def term(self) -> int | None:
        """Return the number of this process's term; None where nobody is elected. Raises NotLeaderError."""
        if self._ask is None:
            return None
        granted = self._ask()
        if granted is None or self._clock() >= granted.until:
            raise NotLeaderError("this process isn't the leader any more, so it changes nothing; the leader goes on")
        return granted.number


FENCE = Fence()
"""Of this process."""
