"""Liveness and signals of `watch`: for a supervisor such as systemd, and for /healthz and /readyz.

A supervisor is notified by systemd's protocol (sd_notify(3)). SIGTERM and Ctrl-C stop the loop, a second one exits,
SIGHUP reads everything again.

Not here: the metrics that the same server has (`metrics`), and HTTP (`http_server`).
"""

from __future__ import annotations

import os
import select
import signal
import socket
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http import HTTPStatus
from types import FrameType

from locallb.cli.watching.http_server import Host, HttpRequest, Page, Pages, host_of
from locallb.cli.watching.metrics import Metrics
from locallb.threads import SupervisedThread, Task
from locallb.watch.events import Cause, Converged, Failed, Leading, LoopEvent, Planned, Pulse


def notify(*lines: str) -> None:
    """Send assignments to the supervisor, such as `READY=1`. A supervisor that doesn't listen is ignored.

    They are datagrams to the socket that it names (sd_notify(3)); without a supervisor nothing is sent.
    """
    place = os.environ.get("NOTIFY_SOCKET", "")
    if not place.startswith(("/", "@")):
        return
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as out:
        out.setblocking(False)
        out.sendto("\n".join(lines).encode(errors="replace"), f"\0{place[1:]}" if place[0] == "@" else place)


def reloading() -> None:
    """Report that the configuration is read again; READY=1 ends it."""
    notify("RELOADING=1", f"MONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}")


def watchdog_seconds() -> float | None:
    """Return the interval in which the supervisor expects a sign of life; None if it expects none."""
    wanted, pid = os.environ.get("WATCHDOG_USEC", ""), os.environ.get("WATCHDOG_PID", "")
    if not wanted.isdigit() or int(wanted) == 0 or pid not in {"", str(os.getpid())}:
        return None
    return int(wanted) / 1e6


INTERRUPTED = 130
TIMEOUT = 2.0
"""Seconds that operations which had begun have to end; the state is valid without, the next run finishes them."""

_INPUT, _OUTPUT = 0, 1
_MODES = 1000, 1003, 1004, 1006, 1015, 1016, 2004, 2048, 1049
_TERMINAL_BACK = b"\x1b[<u" + b"".join(b"\x1b[?%dl" % mode for mode in _MODES) + b"\x1b[?7h\x1b[?25h"
"""Ends what the view asked of the terminal, leaves its screen last and shows the cursor; written directly, because who
draws may be held up."""


class Signals:
    """Calls `stop` or `reload`, which return at once; `on_terminal`: there is a live view."""

    def __init__(self, stop: Callable[[], None], reload: Callable[[], None], *, on_terminal: bool) -> None:
        self._stop = stop
        self._reload = reload
        self._timer: SupervisedThread | None = None
        self.news, self._bell = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        """Readable after a signal, and after `wake`, until `clear`."""
        self._modes = termios.tcgetattr(_INPUT) if on_terminal else None

    def wait(self, seconds: float | None) -> None:
        """Wait on the main thread for a signal, whichever thread it came to, for `wake`, or for some seconds."""
        if select.select([self.news], [], [], seconds)[0]:
            self.clear()

    def clear(self) -> None:
        with suppress(BlockingIOError):
            os.read(self.news, 4096)

    def wake(self) -> None:
        """End `wait`; from any thread."""
        with suppress(BlockingIOError):
            os.write(self._bell, b"\0")

    @contextmanager
    def caught(self) -> Iterator[None]:
        """Catch them, on the main thread."""
        handlers = {
            signal.SIGTERM: self._stop_requested,
            signal.SIGINT: self._stop_requested,
            signal.SIGHUP: self._hung_up,
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

    def stop(self) -> None:
        """Stop as if a signal asked for it, unless one did."""
        if not self._timer:
            self._stop_requested(signal.SIGTERM, None)

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
        if self._modes and not os.isatty(_OUTPUT):
            self._stop_requested(number, frame)
        else:
            self._reload()

    def leave(self, code: int = INTERRUPTED) -> None:
        """End this process at once: the state is valid at every moment, and proxies are processes of their own."""
        if self._modes:
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTTOU})  # of a job in the background
            with suppress(OSError, termios.error):
                termios.tcsetattr(_INPUT, termios.TCSANOW, self._modes)
                if select.select([], [_OUTPUT], [], 0)[1]:
                    os.write(_OUTPUT, _TERMINAL_BACK)
        os._exit(code)

    def leave_lost_terminal(self) -> None:
        """End this process if its terminal is gone, which can't be given back."""
        if not os.isatty(_OUTPUT):
            os._exit(0)


IDLE_LIMIT, BUSY_LIMIT = 30.0, 300.0
"""Seconds without a sign of life after which the loop counts as stuck: while it waits, and while it updates."""


def stuck(pulse: Pulse, now: float) -> str:
    """Explain that the loop is stuck; empty if it isn't. `now` is of the monotonic clock."""
    silent = now - pulse.at
    if silent <= (BUSY_LIMIT if pulse.busy else IDLE_LIMIT):
        return ""
    return f"the loop shows no sign of life for {silent:.0f} s, {'in an update' if pulse.busy else 'idle'}"


def refusal(request: HttpRequest) -> Page | None:
    """Return the refusal of a request with a foreign host name, which led a browser here (DNS rebinding); else None.

    Such a name has a dot, unlike a host's own names; programs may send any address, and none at all.
    """
    host = host_of(request)
    if host and _is_own(host):
        return None
    sentence = b"metrics and health are there under an address, localhost or a name without a dot\n"
    return Page(sentence, status=HTTPStatus.FORBIDDEN)


def _is_own(host: Host) -> bool:
    return host.address is not None or "." not in host.name or host.name.endswith(".localhost")


def pages(metrics: Metrics, pulse: Callable[[], Pulse]) -> Pages:
    """Make the pages of the health and metrics server."""

    def health(_request: HttpRequest) -> Page:
        return _verdict(stuck(pulse(), time.monotonic()))

    def ready(_request: HttpRequest) -> Page:
        return _verdict(stuck(pulse(), time.monotonic()) or metrics.unready())

    def numbers(request: HttpRequest) -> Page:
        return Page(*metrics.text(next(iter(request.values("accept")), "")))

    return {"/metrics": numbers, "/healthz": health, "/readyz": ready}


def _verdict(fault: str) -> Page:
    status = HTTPStatus.SERVICE_UNAVAILABLE if fault else HTTPStatus.OK
    return Page(f"{fault or 'ok'}\n".encode(errors="replace"), status=status)


class Supervised:
    """Keeps a supervisor informed; `listen` in the loop's thread, the rest in the main one."""

    def __init__(self) -> None:
        self._reloading = True  # until the first look, we are starting

    def reload(self) -> None:
        """Report that everything is read again."""
        self._reloading = True
        reloading()

    def listen(self, event: LoopEvent) -> None:
        """Report READY after the first look and after each reload, and the current status."""
        match event:
            case Planned() if self._reloading and _is_whole(event):
                self._ready()
            case Failed():
                notify(f"STATUS=failing: {event.sentence.splitlines()[0][:200]}")
                if self._reloading:
                    self._ready()
            case Converged():
                waiting = f", {event.waiting} tried again later" if event.waiting else ""
                notify(f"STATUS=converged{waiting}")
            case Leading(leads=False):
                notify("STATUS=standing by: another process may lead")
            case _:
                pass

    def stand_by(self) -> None:
        """Report READY although nothing was looked at: it isn't this process's turn."""
        self._ready()
        notify("STATUS=standing by")

    def stopping(self) -> None:
        notify("STOPPING=1")

    def alive(self, pulse: Pulse) -> None:
        """Report that we live, if the loop does."""
        if not stuck(pulse, time.monotonic()):
            notify("WATCHDOG=1")

    def _ready(self) -> None:
        self._reloading = False
        notify("READY=1")


def _is_whole(planned: Planned) -> bool:
    return any(mark.cause in {Cause.START, Cause.CONFIGURATION} for mark in planned.marks)
