"""Ctrl-C: once to finish what runs and start nothing more, twice to stop at once. The state stays valid either way.

So are SIGTERM and SIGHUP, where whoever embeds the engine handles them.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stop:
    """Asks for nothing more to be started; what is under way ends. A `wider` one asks the same of this one's runs.

    It is never taken back: whoever asks before a run begins, or between two, is heard as well.
    """

    def __init__(self, wider: Stop | None = None) -> None:
        self._requested = threading.Event()
        self._wider = wider

    def ask(self) -> None:
        """Ask for it; from any thread."""
        self._requested.set()

    def is_requested(self) -> bool:
        """Return whether an interrupt was requested."""
        return self._requested.is_set() or (self._wider is not None and self._wider.is_requested())


@contextmanager
def interruptible(stop: Stop) -> Iterator[None]:
    """Ask `stop` at the first signal and do at the next what would have been done; on the main thread only.

    For Ctrl-C that is KeyboardInterrupt, unless the embedding program handles it in another way.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, frame: FrameType | None) -> None:
        if stop.is_requested():
            before[number](number, frame)
        stop.ask()

    before = {int(number): handler for number in _ENDING if callable(handler := signal.getsignal(number))}
    for number in before:
        signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def waking(wake: Callable[[], None]) -> Iterator[None]:
    """Wake the main thread by a call from another one at each signal, whichever thread that came to.

    Otherwise one that waits for a queue handles the signal when there is something for it in the queue.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    news, bell = os.pipe2(os.O_CLOEXEC)
    os.set_blocking(bell, False)
    before = signal.set_wakeup_fd(bell, warn_on_full_buffer=False)

    def pass_on() -> None:
        while numbers := os.read(news, 4096):
            wake()
            if before >= 0:
                with suppress(OSError):  # whoever asked before has enough to read, or has left
                    os.write(before, numbers)

    thread = threading.Thread(target=pass_on, name="signals", daemon=True)
    thread.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        os.close(bell)
        thread.join()
        os.close(news)
