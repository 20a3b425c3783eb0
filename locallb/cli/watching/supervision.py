"""Liveness of the loop, for a supervisor such as systemd and for /healthz and /readyz."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from http import HTTPStatus

from locallb.cli.watching import sd_notify
from locallb.cli.watching.http.host_header import Host, host_of
from locallb.cli.watching.http.http_messages import Page, Request
from locallb.cli.watching.metrics.metrics import Metrics
from locallb.watch.events import Cause, Converged, Failed, Leading, LoopEvent, Planned, Pulse

IDLE_LIMIT, BUSY_LIMIT = 30.0, 300.0
"""Seconds without a sign of life after which the loop counts as stuck: while it waits, and while it updates."""


def stuck(pulse: Pulse, now: float) -> str:
    """Explain that the loop is stuck; empty if it isn't. `now` is of the monotonic clock."""
    silent = now - pulse.at
    if silent <= (BUSY_LIMIT if pulse.busy else IDLE_LIMIT):
        return ""
    return f"the loop shows no sign of life for {silent:.0f} s, {'in an update' if pulse.busy else 'idle'}"


def refusal(request: Request) -> Page | None:
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


def pages(metrics: Metrics, pulse: Callable[[], Pulse]) -> Mapping[str, Callable[[str], Page]]:
    """Make the pages of the health and metrics server."""

    def health(_accept: str) -> Page:
        return _verdict(stuck(pulse(), time.monotonic()))

    def ready(_accept: str) -> Page:
        return _verdict(stuck(pulse(), time.monotonic()) or metrics.unready())

    def numbers(accept: str) -> Page:
        return Page(*metrics.text(accept))

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
        sd_notify.reloading()

    def listen(self, event: LoopEvent) -> None:
        """Report READY after the first look and after each reload, and the current status."""
        match event:
            case Planned() if self._reloading and _is_whole(event):
                self._ready()
            case Failed():
                sd_notify.notify(f"STATUS=failing: {event.sentence.splitlines()[0][:200]}")
                if self._reloading:
                    self._ready()
            case Converged():
                waiting = f", {event.waiting} tried again later" if event.waiting else ""
                sd_notify.notify(f"STATUS=converged{waiting}")
            case Leading(leads=False):
                sd_notify.notify("STATUS=standing by: another process may lead")
            case _:
                pass

    def stand_by(self) -> None:
        """Report READY although nothing was looked at: it isn't this process's turn."""
        self._ready()
        sd_notify.notify("STATUS=standing by")

    def stopping(self) -> None:
        """Report that we end."""
        sd_notify.notify("STOPPING=1")

    def alive(self, pulse: Pulse) -> None:
        """Report that we live, if the loop does."""
        if not stuck(pulse, time.monotonic()):
            sd_notify.notify("WATCHDOG=1")

    def _ready(self) -> None:
        self._reloading = False
        sd_notify.notify("READY=1")


def _is_whole(planned: Planned) -> bool:
    return any(mark.cause in {Cause.START, Cause.CONFIGURATION} for mark in planned.marks)
