"""How a run ended: the tree or the counts, the table, the complaints, and the exit code. Not here: the run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from locallb.cli.arguments import Arguments
from locallb.cli.console import Out
from locallb.cli.display.service_table import as_reported, print_services, services_json
from locallb.cli.display.tree import print_counts, print_steps
from locallb.cli.exit_code import Exit
from locallb.cli.observe import inspect
from locallb.cli.session import Session
from locallb.cli.targets import MAX_NAMES
from locallb.engine.core.events import Op, Result, Severity
from locallb.model.formatting import few
from locallb.model.state_resource import BALANCER
from locallb.planning.planned import Plan
from locallb.planning.status import NOT_DEPLOYED, Row
from locallb.sources.snapshot import SnapshotResult

if TYPE_CHECKING:
    from locallb.cli.program import Program


def what_was_planned(session: Session, program: Program) -> tuple[SnapshotResult, Plan]:
    """Return what the program read and planned; what can be read now if it broke off before.

    Raises SourceError.
    """
    return program.outcome or program.handed or session.plan()


def report_outcome(  # noqa: PLR0913, PLR0917 - what a run is told by
    session: Session,
    args: Arguments,
    out: Out,
    command: str,
    result: Result,
    plan: Plan,
    *,
    printed: frozenset[str] = frozenset(),
) -> int:
    """Print how a run ended, without sentences that were `printed` before or twice; return the exit code."""
    table = inspect(plan)
    if args.json:
        print_json(out, session, command, result, table)
    else:
        if command == "preview":
            print_steps(out, result, planned=True)
            printed |= _to_come(table, result)
        else:
            print_counts(out, result, planned=False)
        out.line("")
        print_services(out, table, printed, plan.left_out)
        complain(out, result, printed.union(*map(as_reported, table)))
    if not result.ok:
        return ending(result)
    if args.expect_no_changes and not result.unchanged:
        out.error("no changes were expected, but there are changes")
        return Exit.CHANGES
    return _served(table, args, out)


def _to_come(table: Sequence[Row], result: Result) -> frozenset[str]:
    """Return the messages of Services that are undeployed because they are new, which the tree above shows."""
    new = {step.subject.name for step in result.steps if step.op is Op.CREATE and step.subject.type == BALANCER}
    return frozenset(row.message for row in table if row.reason == NOT_DEPLOYED and str(row.key) in new)


def _served(table: Sequence[Row], args: Arguments, out: Out) -> int:
    """Complain of Services in a state that `--fail-on` names, and give the exit code."""
    failing = [row for row in table if row.state in args.fail_on]
    if not failing:
        return Exit.OK
    names = few([f"{row.key} is {row.state}" for row in failing], MAX_NAMES)
    out.error(f"--fail-on {' '.join(args.fail_on)}: {names}")
    return Exit.UNSERVED


def ending(result: Result) -> int:
    """Return the exit code for how a run ended."""
    if result.interrupted:
        return Exit.INTERRUPTED
    return Exit.OK if result.ok else Exit.FAILED


def complain(out: Out, result: Result, printed: frozenset[str] = frozenset()) -> None:
    """Print errors and warnings, each once, except those already `printed`."""
    unprinted = [diagnostic for diagnostic in result.diagnostics if diagnostic.message not in printed]
    messages = {diagnostic.message: diagnostic.severity for diagnostic in unprinted}
    for message, severity in messages.items():
        if severity is Severity.ERROR:
            out.error(message)
        elif severity is Severity.WARNING:
            out.warning(message)


def print_json(out: Out, session: Session, command: str, result: Result, table: tuple[Row, ...]) -> None:
    """Print the documented object of a run."""
    document = {
        "command": command,
        "stack": session.stack,
        "ok": result.ok,
        "seconds": round(result.duration, 3),
        "changes": {op.value: count for op, count in sorted(result.changes.items()) if count},
        "steps": [
            {
                "op": step.op.value,
                "type": step.subject.type,
                "name": step.subject.name,
                "urn": step.subject.urn,
                "properties": [change.path for change in step.changes],
                "failed": step.failed,
            }
            for step in result.steps
        ],
        "services": services_json(table),
        "diagnostics": [
            {"severity": diagnostic.severity.value, "message": diagnostic.message, "urn": diagnostic.urn}
            for diagnostic in result.diagnostics
        ],
    }
    out.raw(json.dumps(document, indent=2, ensure_ascii=True))
