"""The fence of leader election: whether this process may still act, checked before each effect, without a request.

Without an election it always may; with one, only in its own term (monotonic). A process can sleep between the check
and the effect, so stronger checks follow where possible: the ledger compares terms under its lock, and the API gets
the resourceVersion that was read before the check.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from locallb.kubernetes.lease import Term
from locallb.model.errors import ClientError


class NotLeaderError(ClientError):
    """This process isn't the leader, or no longer: one sentence."""


class Fence:
    """The term of this process in an election. Safe to use from several threads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._ask: Callable[[], Term | None] | None = None

    def put(self, ask: Callable[[], Term | None] | None) -> None:
        """Set the source of this process's term; None: no election."""
        self._ask = ask

    def term(self) -> int | None:
        """Return the number of this process's term; None without an election. Raises NotLeaderError."""
        if self._ask is None:
            return None
        granted = self._ask()
        if granted is None or self._clock() >= granted.until:
            raise NotLeaderError("this process isn't the leader any more, so it changes nothing; the leader goes on")
        return granted.number


FENCE = Fence()
"""Of this process."""
