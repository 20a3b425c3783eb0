"""Signals while the loop runs: SIGTERM and Ctrl-C stop it, a second one exits, SIGHUP reads everything again."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from locallb.threads.supervised import SupervisedThread, Task

INTERRUPTED = 130
TIMEOUT = 2.0
"""Seconds that operations which had begun have to end; the state is valid without, the next run finishes them."""

_OUTPUT = 1
_TERMINAL_BACK = b"\x1b[?1049l\x1b[?25h"
"""Leaves the alternate screen and shows the cursor; written directly, because who draws may be held up."""


class Signals:
    """Calls `stop` or `reload`, which return at once; `on_terminal`: there is a live view."""

    def __init__(self, stop: Callable[[], None], reload: Callable[[], None], *, on_terminal: bool) -> None:
        self._stop = stop
        self._reload = reload
        self._on_terminal = on_terminal
        self._timer: SupervisedThread | None = None
        self._news, self._bell = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def wait(self, seconds: float | None) -> None:
        """Wait on the main thread for a signal, whichever thread it came to, for `wake`, or for some seconds."""
        if select.select([self._news], [], [], seconds)[0]:
            with suppress(BlockingIOError):
                os.read(self._news, 4096)

    def wake(self) -> None:
        """End `wait`; from any thread."""
        with suppress(BlockingIOError):
            os.write(self._bell, b"\0")

    @contextmanager
    def caught(self, resized: Callable[[], None]) -> Iterator[None]:
        """Catch them, on the main thread; `resized` is called when the terminal has another size."""

        def ignore_or_resize(_number: int, _frame: FrameType | None) -> None:
            resized()

        handlers = {
            signal.SIGTERM: self._stop_requested,
            signal.SIGINT: self._stop_requested,
            signal.SIGHUP: self._hung_up,
            signal.SIGWINCH: ignore_or_resize,
        }
        woken = signal.set_wakeup_fd(self._bell, warn_on_full_buffer=False)
        before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
        try:
            yield
        finally:
            if self._timer:
                self._timer.stop()
            signal.set_wakeup_fd(woken)
            for number, handler in before.items():
                signal.signal(number, handler)

    def _stop_requested(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        if self._timer:
            self.leave()
        self._timer = SupervisedThread(Task.SIGNALS, "signals", self._leave_later)
        self._timer.start()
        self._stop()

    def _leave_later(self) -> None:
        if self._timer and not self._timer.stopped.wait(TIMEOUT):
            self.leave()

    def _hung_up(self, number: int, frame: FrameType | None) -> None:
        """Reload; but a terminal that went away took its user with it."""
        if self._on_terminal and not os.isatty(_OUTPUT):
            self._stop_requested(number, frame)
        else:
            self._reload()

    def leave(self, code: int = INTERRUPTED) -> None:
        """End this process at once: the state is valid at every moment, and proxies are processes of their own."""
        if self._on_terminal:
            with suppress(OSError):
                if select.select([], [_OUTPUT], [], 0)[1]:
                    os.write(_OUTPUT, _TERMINAL_BACK)
        os._exit(code)
