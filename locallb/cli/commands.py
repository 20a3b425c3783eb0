"""The commands, each a short story: open, ask, run, tell. Each gives the exit code."""

from __future__ import annotations

import json
import sys

from locallb.cli.arguments import Arguments
from locallb.cli.console import Out
from locallb.cli.observe import observe
from locallb.cli.progress import Progress
from locallb.cli.report.command import refuse, tell
from locallb.cli.report.live import report_live
from locallb.cli.report.text import beside_the_table, print_alerts
from locallb.cli.services import print_services, services_json
from locallb.cli.session import Program, Session
from locallb.cli.targets import scope_of
from locallb.cli.tree import print_counts, print_steps
from locallb.engine import Result, Severity
from locallb.planning.planned import Plan
from locallb.planning.status import Row, rows
from locallb.sources.snapshot import Reading

OK, FAILED, CHANGES, INTERRUPTED = 0, 1, 7, 130


class NotConfirmed(Exception):  # noqa: N818 - an answer, not an error
    """The user said no, or could not be asked."""


def up(session: Session, args: Arguments, out: Out) -> int:
    """Make the world as the plan says."""
    session.settings  # noqa: B018 - a mistake in the configuration is told before anything else
    scope = scope_of(session, args.targets)
    if not args.yes:
        with Progress(out, f"Previewing update ({session.stack})", silent=args.json) as progress:
            preview = session.engine(progress.listen).preview(session.program(), scope=scope)
        print_steps(out, preview, planned=True)
        _complain(out, preview)
        if not preview.ok:
            return FAILED
        _confirm("Perform this update?")
    program = session.program()
    with Progress(out, f"Updating ({session.stack})", silent=args.json) as progress:
        result = session.engine(progress.listen).up(program, scope=scope)
    return _tell(session, args, out, "up", result, _planned(session, program)[1])


def preview(session: Session, args: Arguments, out: Out) -> int:
    """Show what `up` would do."""
    session.settings  # noqa: B018 - as above
    scope = scope_of(session, args.targets)
    silent, program = args.json or args.format != "tree", session.program()
    with Progress(out, f"Previewing update ({session.stack})", silent=silent) as progress:
        result = session.engine(progress.listen).preview(program, scope=scope)
    reading, plan = _planned(session, program)
    if args.targets:  # policies and reports are about whole stacks
        return _tell(session, args, out, "preview", result, plan)
    report = report_live(session, result, reading, plan)
    if args.format != "tree":
        return INTERRUPTED if result.interrupted else tell(report, args, out)
    if not args.json:
        print_alerts(out, beside_the_table(report))
    code = _tell(session, args, out, "preview", result, plan)
    refused = refuse(report.violations, out)
    return refused or code if code in {OK, CHANGES} else code


def refresh(session: Session, args: Arguments, out: Out) -> int:
    """Correct the state by what is really there."""
    if not args.yes:
        _confirm("Correct the state by what is really there?")
    with Progress(out, f"Refreshing ({session.stack})", silent=args.json) as progress:
        result = session.engine(progress.listen).refresh()
    return _tell(session, args, out, "refresh", result, session.plan()[1])


def destroy(session: Session, args: Arguments, out: Out) -> int:
    """Remove all that this stack made."""
    if not args.yes:
        planned = session.engine(lambda _event: None).destroy(preview=True)
        print_steps(out, planned, planned=True)
        _confirm("Destroy all of this?")
    with Progress(out, f"Destroying ({session.stack})", silent=args.json) as progress:
        result = session.engine(progress.listen).destroy()
    if result.ok:
        session.forget_readings()
    if args.json:
        _print_json(out, session, "destroy", result, ())
    else:
        print_counts(out, result, planned=False)
        _complain(out, result)
    return _ending(result)


def status(session: Session, args: Arguments, out: Out) -> int:
    """Show every Service, checked now."""
    reading, plan = session.plan()
    table = look(plan)
    if args.json:
        out.raw(json.dumps(services_json(table), indent=2))
    else:
        print_services(out, table)
    for complaint in reading.complaints:
        out.error(complaint)
    return FAILED if reading.complaints else OK


def look(plan: Plan) -> tuple[Row, ...]:
    """Ask every proxy of the plan, and tell the state of every Service."""
    return rows(plan, observe(proxy.proxy for proxy in plan.proxies))


def _planned(session: Session, program: Program) -> tuple[Reading, Plan]:
    """Return what the program read and planned; what can be read now if it broke off before.

    Raises SourceError.
    """
    return program.outcome or session.plan()


def _tell(  # noqa: PLR0913, PLR0917 - what a run is told by
    session: Session, args: Arguments, out: Out, command: str, result: Result, plan: Plan
) -> int:
    """Tell how a run ended: the tree or the counts, the table, the complaints."""
    planned = command == "preview"
    table = look(plan)
    if args.json:
        _print_json(out, session, command, result, table)
    else:
        if planned:
            print_steps(out, result, planned=True)
        else:
            print_counts(out, result, planned=False)
        out.line("")
        print_services(out, table)
        _complain(out, result)
    if not result.ok:
        return _ending(result)
    if args.expect_no_changes and not result.unchanged:
        out.error("no changes were expected, but there are changes")
        return CHANGES
    return OK


def _ending(result: Result) -> int:
    """Give the exit code for how a run ended."""
    if result.interrupted:
        return INTERRUPTED
    return OK if result.ok else FAILED


def _complain(out: Out, result: Result) -> None:
    """Print errors, and those warnings that the table doesn't tell."""
    for diagnostic in result.diagnostics:
        if diagnostic.severity is Severity.ERROR:
            out.error(diagnostic.message)
        elif diagnostic.severity is Severity.WARNING:
            out.warning(diagnostic.message)


def _confirm(question: str) -> None:
    """Ask on a terminal; anything but yes ends the command."""
    if not sys.stdin.isatty():
        raise NotConfirmed("there is no terminal to ask on; say --yes to go on without being asked")
    if input(f"{question} [y/N] ").strip().lower() not in {"y", "yes"}:
        raise NotConfirmed("nothing was changed")


def _print_json(out: Out, session: Session, command: str, result: Result, table: tuple[Row, ...]) -> None:
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
            {"severity": one.severity.value, "message": one.message, "urn": one.urn} for one in result.diagnostics
        ],
    }
    out.raw(json.dumps(document, indent=2, ensure_ascii=True))
