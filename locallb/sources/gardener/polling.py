"""A seed, asked every few seconds whether its shoots, or how they are reached, are others than at the last time.

What would be watched are objects of a whole Shoot each, of which two fields count, and Secrets, one by one.
Not here: what is done about it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from locallb.kubernetes.access.errors import KubeError
from locallb.kubernetes.access.kubeconfig import resolve
from locallb.model.pacing import Backoff, Pace
from locallb.sources.gardener.entry import GardenerSource
from locallb.sources.gardener.finding import is_meant
from locallb.sources.gardener.seed import Look, Seed
from locallb.threads.jitter import jitter
from locallb.threads.supervised import SupervisedThread, Task

PACE = Pace(first=5.0, longest=20.0, floor=5.0)
"""A shoot takes minutes to come, and half a minute to wake."""


class SeedPolls:
    """Calls `changed` from a thread of its own where something is different, and at first, until `stop`."""

    def __init__(self, finder: GardenerSource, root: Path, changed: Callable[[str], None], pace: Pace = PACE) -> None:
        self._finder = finder
        self._root = root
        self._changed = changed
        self._backoff = Backoff(pace)
        self._seed: Seed | None = None
        self._thread = SupervisedThread(
            Task.FOLLOWER, f"{finder.cluster} shoots", self._follow, subject=finder.cluster, failed=self._lose
        )
        self._thread.start()

    def stop(self) -> None:
        """Ask no more, once the last answer has come."""
        self._thread.stop()

    def _follow(self) -> None:
        seen: list[Look | None] = []
        while not self._thread.stopped.wait(self._backoff.wait(time.monotonic())):
            now = self._look()
            if seen != [now] and not self._thread.stopped.is_set():
                seen = [now]
                self._changed("")

    def _look(self) -> Look | None:
        """Return what the seed has; None where it doesn't answer."""
        try:
            access = resolve(self._finder.kubeconfig, self._finder.context, self._root)
            if self._seed is None or self._seed.access != access:
                self._seed = Seed(access)
            look = self._seed.look(lambda name: is_meant(self._finder, name))
        except KubeError:
            self._backoff = self._backoff.failed(time.monotonic(), jitter())
            return None
        self._backoff = self._backoff.succeeded(time.monotonic())
        return look

    def _lose(self, _sentence: str) -> None:
        """Let somebody else ask, where nobody does here for a while."""
        self._changed("")
