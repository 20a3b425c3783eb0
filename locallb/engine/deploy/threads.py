"""A thread pool that an engine keeps from run to run, because starting threads takes longer than most of their work.

A run has a shift of its own, which ends with the run: what it submitted is waited for then, or dropped.
"""

from collections.abc import Callable
from concurrent import futures
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, ParamSpec, TypeVar

T = TypeVar("T")
P = ParamSpec("P")


class Shift(ThreadPoolExecutor):
    """One run's use of threads that outlive it; of the kind that an event loop takes as its own executor."""

    def __init__(self, crew: ThreadPoolExecutor) -> None:
        self._crew = crew
        self._begun: set[Future[Any]] = set()

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Run it in a thread."""
        future = self._crew.submit(fn, *args, **kwargs)
        self._begun.add(future)
        future.add_done_callback(self._begun.discard)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: FBT001, FBT002 - as above
        """End the shift: the threads stay."""
        remaining = tuple(self._begun)
        if cancel_futures:
            for future in remaining:
                future.cancel()
        if wait:
            futures.wait(remaining)
