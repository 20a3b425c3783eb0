"""Counters of effects, from any thread, for tests and metrics. Nothing depends on them."""

from __future__ import annotations

from threading import Lock


class Tally:
    """How often each of a few kinds of thing was done since the process began."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._counts: dict[str, int] = {}

    def add(self, kind: str) -> None:
        """Count one."""
        with self._lock:
            self._counts[kind] = self._counts.get(kind, 0) + 1

    def counts(self) -> dict[str, int]:
        """Return all counts."""
        with self._lock:
            return dict(self._counts)
