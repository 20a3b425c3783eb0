"""Applies an override: an update of the affected Services, also during a running `watch`."""

from __future__ import annotations

from collections.abc import Iterable

from locallb.cli.arguments import Arguments
from locallb.cli.console import Out
from locallb.cli.display.outcome import complain, ending
from locallb.cli.display.progress import Progress
from locallb.cli.exit_code import Exit
from locallb.cli.session import Session, once_free
from locallb.cli.targets import scope_of
from locallb.engine.core.events import Result
from locallb.model.formatting import few
from locallb.model.identities import ObjectKey
from locallb.model.state_resource import BALANCER


def bring_about(session: Session, keys: Iterable[ObjectKey], args: Arguments, out: Out) -> Exit:
    """Update these now, where they are deployed; give the exit code."""
    deployed = {resource.name for resource in session.resources() if resource.type == BALANCER}
    names = [str(key) for key in keys]
    if missing := [name for name in names if name not in deployed]:
        out.warning(f"not deployed yet: {few(missing)}; `locallb up` serves it as it is ordered then")
    if not (present := [name for name in names if name in deployed]):
        return Exit.OK
    if session.election():
        out.warning(f"the leader of stack {session.stack} applies it; if none is running, run `locallb up`")
        return Exit.OK
    session.require_runtime(planned=True)
    with Progress(out, f"Updating ({session.stack})", silent=args.json) as progress:
        result = once_free(lambda: _updated(session, present, progress))
    if not result.ok:
        complain(out, result)
    return Exit(ending(result))


def _updated(session: Session, names: list[str], progress: Progress) -> Result:
    """Update these. Raises LockHeld."""
    as_of = session.stamp()
    scope, plan = scope_of(session, names, keep=True)
    session.sign_in()
    program = session.program(plan, lambda: session.stamp() == as_of)
    return program.update(session.engine(progress.listen), scope)
