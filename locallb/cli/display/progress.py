"""Live progress: on a terminal one line that moves, above it finished steps; elsewhere a plain line for each step."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Self

from locallb.cli.console import Out
from locallb.cli.display.tree import QUIET, SIGNS
from locallb.engine.core.events import DiagnosticEvent, Event, Op, Severity, StepDone, StepFailed, StepStarted

if TYPE_CHECKING:
    from rich.status import Status

DOING = {
    Op.CREATE: "creating",
    Op.UPDATE: "updating",
    Op.DELETE: "deleting",
    Op.REPLACE: "replacing",
    Op.CREATE_REPLACEMENT: "creating replacement",
    Op.DELETE_REPLACED: "deleting replaced",
}


class Progress:
    """Listens to the engine. Use it as a context manager and pass `listen` to the engine."""

    def __init__(self, out: Out, title: str, *, silent: bool = False) -> None:
        self._out = out
        self._silent = silent
        self._running: dict[tuple[Op, str], str] = {}
        self._status = _status(out, title) if out.live and not silent else None
        self._title = title

    def __enter__(self) -> Self:
        if self._status:
            self._status.start()
        elif not self._silent:
            self._out.line((self._title, "bold"))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._status:
            self._status.stop()

    def listen(self, event: Event) -> None:
        """Show one event."""
        if self._silent:
            return
        if isinstance(event, DiagnosticEvent):
            self._report(event)
        elif isinstance(event, StepStarted):
            self._begin(event)
        elif isinstance(event, (StepDone, StepFailed)):
            self._end(event)

    def _report(self, event: DiagnosticEvent) -> None:
        if event.diagnostic.severity is Severity.INFO:
            self._out.line(event.diagnostic.message)

    def _begin(self, event: StepStarted) -> None:
        if event.op in QUIET - {Op.CREATE_REPLACEMENT, Op.DELETE_REPLACED}:
            return
        self._running[event.op, event.subject.urn] = f"{DOING[event.op]} {_named(event)}"
        self._update()

    def _end(self, event: StepDone | StepFailed) -> None:
        self._running.pop((event.op, event.subject.urn), None)
        self._update()
        if event.op not in DOING:
            return
        sign, style = SIGNS[event.op]
        failed = isinstance(event, StepFailed)
        seconds = "" if event.seconds < SHORT else f" ({event.seconds:.2f}s)"
        terms = ("  failed", "bold red") if failed else ""
        self._out.line((f" {sign:<2} ", style), _named(event), seconds, terms)

    def _update(self) -> None:
        if self._status:
            first = next(iter(self._running.values()), "")
            more = f" and {len(self._running) - 1} more" if len(self._running) > 1 else ""
            self._status.update(f"{self._title} {first}{more}")


def _status(out: Out, title: str) -> Status:
    """Return the line that moves."""
    from rich.status import Status  # noqa: PLC0415 - only on a terminal

    return Status(title, console=out.console)


SHORT = 0.1
"""Seconds below which a duration is not shown."""


def _named(event: StepStarted | StepDone | StepFailed) -> str:
    return f"{event.subject.type.rpartition(':')[2]} {event.subject.name}"
