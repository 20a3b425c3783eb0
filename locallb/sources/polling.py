"""Polls an API every few seconds for a change.

For data that a finder needs and that can't be watched. Not here: the request, and the reaction to a change.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from locallb.kubernetes.access.servers import KubeError
from locallb.model.pacing import Backoff, Pace
from locallb.threads import SupervisedThread, Task, jitter

PACE = Pace(first=5.0, longest=20.0, floor=5.0)
"""A Node or a cluster takes minutes to come, and half a minute to wake."""


class Polls:
    """Calls `changed` from a thread of its own where `inspect` sees something different, and at first, until `stop`.

    `inspect` may raise KubeError: then nothing is seen, and it looks less often.
    """

    def __init__(
        self, subject: str, name: str, inspect: Callable[[], object], changed: Callable[[str], None], pace: Pace = PACE
    ) -> None:
        self._ask = inspect
        self._changed = changed
        self._backoff = Backoff(pace)
        self._thread = SupervisedThread(Task.FOLLOWER, name, self._follow, subject=subject, failed=self._lose)
        self._thread.start()

    def stop(self) -> None:
        """Stop asking, once the last answer has come."""
        self._thread.stop()

    def _follow(self) -> None:
        observed: list[object] = []
        while not self._thread.stopped.wait(self._backoff.wait(time.monotonic())):
            answer = self._inspect()
            if observed != [answer] and not self._thread.stopped.is_set():
                observed = [answer]
                self._changed("")

    def _inspect(self) -> object:
        """Return what is seen; None where there is no answer."""
        try:
            observed = self._ask()
        except KubeError:
            self._backoff = self._backoff.failed(time.monotonic(), jitter())
            return None
        self._backoff = self._backoff.succeeded(time.monotonic())
        return observed

    def _lose(self, _sentence: str) -> None:
        """Report a change, so that readers ask themselves while this thread does not."""
        self._changed("")
