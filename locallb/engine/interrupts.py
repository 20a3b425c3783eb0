"""Ctrl-C: once to finish what runs and start nothing more, twice to stop at once. The state stays valid either way."""

import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from types import FrameType


@contextmanager
def interruptible(cancelled: threading.Event) -> Iterator[None]:
    """Set `cancelled` at the first Ctrl-C and raise KeyboardInterrupt at the next; on the main thread only."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        if cancelled.is_set():
            raise KeyboardInterrupt
        cancelled.set()

    before = signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def waited_for(pool: ThreadPoolExecutor) -> Iterator[ThreadPoolExecutor]:
    """Use threads, and wait for what they began at the end unless the user has had enough."""
    patient = True
    try:
        yield pool
    except KeyboardInterrupt:
        patient = False
        raise
    finally:
        pool.shutdown(wait=patient, cancel_futures=True)
