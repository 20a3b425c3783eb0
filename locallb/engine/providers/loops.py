"""Runs a provider's coroutines on worker threads, each on an event loop of a small pool.

A loop costs more than most provider calls, so loops are kept for a run. The program has a loop of its own.
"""

import asyncio
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import Any, TypeVar

T = TypeVar("T")


def finished(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never waits. Raises RuntimeError if it does."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    coroutine.close()
    raise RuntimeError("a provider that works in place waited for something")


class _Loop(asyncio.SelectorEventLoop):
    """An event loop that complains of nothing where the host had no descriptor left for a part of it."""

    is_made = False

    def __init__(self) -> None:
        super().__init__()
        self.is_made = True

    def __del__(self, *given: Any) -> None:  # noqa: ANN401 - as asyncio has it
        if self.is_made:
            super().__del__(*given)


def new_loop() -> asyncio.AbstractEventLoop:
    """Make an event loop. Raises OSError where it can't be had; nothing is left of one that was begun."""
    return _Loop()


class LoopPool:
    """Event loops for blocking calls of coroutines; close it at the end of the run."""

    def __init__(self) -> None:
        self._idle: list[asyncio.AbstractEventLoop] = []
        self._closed = False
        self._lock = Lock()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end, on this thread unless it runs a loop of its own."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return self._run(coroutine)
        with ThreadPoolExecutor(1) as other:
            return other.submit(self._run, coroutine).result()

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        with self._lock:
            loop = self._idle.pop() if self._idle else None
        try:
            loop = loop or new_loop()
        except OSError:
            coroutine.close()
            raise
        try:
            return loop.run_until_complete(coroutine)
        finally:
            self._give_back(loop)

    def _give_back(self, loop: asyncio.AbstractEventLoop) -> None:
        with self._lock:
            if not self._closed:
                self._idle.append(loop)
                return
        loop.close()  # a call that outlived its run, after a second interrupt

    def close(self) -> None:
        """Close every loop, those in use when they come back."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for loop in idle:
            loop.close()
