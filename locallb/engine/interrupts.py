"""Ctrl-C: once to finish what runs and start nothing more, twice to stop at once. The state stays valid either way.

So are SIGTERM and SIGHUP, where whoever embeds the engine handles them.
"""

import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from types import FrameType

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def interruptible(cancelled: threading.Event) -> Iterator[None]:
    """Set `cancelled` at the first signal and do at the next what would have been done; on the main thread only.

    For Ctrl-C that is KeyboardInterrupt, unless the embedding program handles it in another way.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, frame: FrameType | None) -> None:
        if cancelled.is_set():
            before[number](number, frame)
        cancelled.set()

    before = {int(number): handler for number in _ENDING if callable(handler := signal.getsignal(number))}
    for number in before:
        signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


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
