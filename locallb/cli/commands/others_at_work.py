"""Other processes at work on a stack, or what they left: reported, refused or ended before a command continues."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from locallb.cli.console import Out
from locallb.cli.session import Session
from locallb.runtimes.process import processes
from locallb.runtimes.process.processes import Process
from locallb.runtimes.single_instance import AlreadyRunningError, holder, only_one

TIMEOUT = 30.0
"""Seconds from SIGTERM to SIGKILL: a `watch` finishes the operations that it has begun."""


def warn_if_watching(session: Session, out: Out) -> None:
    """Report that a `watch` keeps the stack as it is configured, whatever this command does."""
    if process := holder(session.watch_lock):
        out.warning(f"`watch` (pid {process.pid}) keeps stack {session.stack} converged, too; this is done beside it")


@contextmanager
def without_watch(session: Session, *, stop: bool) -> Iterator[None]:
    """Keep every `watch` of the stack away; one that runs is ended if `stop`. Raises TakenError, ProcessError."""
    if process := holder(session.watch_lock):
        if not stop:
            raise AlreadyRunningError(_refusal(session, process))
        if not processes.has_open(process, session.watch_lock):  # that pid is another process's here
            raise AlreadyRunningError(
                f"`watch` of stack {session.stack} runs elsewhere, as in a container: end it there first"
            )
        processes.stop(process, TIMEOUT)
    with only_one(session.watch_lock, f"watch of stack {session.stack}"):
        yield


def forgotten(session: Session) -> int:
    """Count what this stack has on this host although its state knows of nothing. Raises ClientError."""
    from locallb.leftovers.host import on_this_host  # noqa: PLC0415 - only a destroy needs it

    return sum(leftover.ours for leftover in on_this_host(session.home, (), ()))


def _refusal(session: Session, process: Process) -> str:
    return (
        f"`watch` of stack {session.stack} runs (pid {process.pid}) and would make again what `destroy` removes: end it"
        " first, or run `locallb destroy --stop-watch`"
    )
