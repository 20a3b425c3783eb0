"""The queue of marks: any thread puts them, the loop's thread takes them. Not here: what they lead to."""

from __future__ import annotations

from contextlib import suppress
from queue import Empty, SimpleQueue

from locallb.watch.events import Mark


class Inbox:
    """A queue that has each mark once, so it can't grow while an update takes long."""

    def __init__(self) -> None:
        self._marks: SimpleQueue[Mark | None] = SimpleQueue()
        self._waiting: set[Mark] = set()

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, mark: Mark) -> None:
        """Note that something may have changed; a mark that waits to be taken says so already."""
        if mark not in self._waiting:
            self._waiting.add(mark)
            self._marks.put(mark)

    def wake(self) -> None:
        """Wake the thread that waits."""
        self._marks.put(None)

    def take(self, timeout: float = 0.0) -> list[Mark]:
        """Wait for the next trigger, and return it with all pending ones; none after `timeout` seconds, or `wake`."""
        claimed: list[Mark | None] = []
        with suppress(Empty):
            claimed.append(self._marks.get(timeout=max(0.0, timeout)))
            while True:
                claimed.append(self._marks.get_nowait())
        marks = [mark for mark in claimed if mark]
        self._waiting.difference_update(marks)
        return marks
