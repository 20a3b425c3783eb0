"""The commands, each a short story: open, ask, run, tell. Each gives the exit code."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

from locallb.cli.arguments import Arguments
from locallb.cli.commands.observe import observe
from locallb.cli.commands.others_at_work import forgotten, tell_of_watch, without_watch
from locallb.cli.commands.progress import Progress
from locallb.cli.commands.service_table import as_told, print_services, services_json
from locallb.cli.commands.targets import MOST_NAMES, scope_of
from locallb.cli.commands.tree import print_counts, print_steps
from locallb.cli.console import Out
from locallb.cli.exit_code import Exit
from locallb.cli.failures import Refused
from locallb.cli.reports.command import refuse, tell
from locallb.cli.reports.live import report_live
from locallb.cli.reports.text import beside_the_table, print_alerts
from locallb.cli.session import Program, Session
from locallb.engine import EngineError, Result, Severity
from locallb.model.formatting import counted
from locallb.planning.planned import Plan
from locallb.planning.status import Row, rows
from locallb.sources.snapshot import SnapshotResult


def up(session: Session, args: Arguments, out: Out) -> int:
    """Make the world as the plan says."""
    tell_of_watch(session, out)
    session.settings  # noqa: B018 - a mistake in the configuration is told before anything else
    scope, plan = scope_of(session, args.targets, keep=args.yes)
    told: frozenset[str] = frozenset()
    if not args.yes:
        with Progress(out, f"Previewing update ({session.stack})", silent=args.json) as progress:
            program, plan = session.program(plan), None
            planned = session.engine(progress.listen).preview(program, scope=scope)
        if (planned.ok and planned.unchanged) or (args.json and not planned.ok):
            return _tell(session, args, out, "up", planned, _planned(session, program)[1])
        told = _ask_about(out, args, planned)
        if not planned.ok:
            return _ending(planned)
        if not confirmed("Perform this update?", out):
            return Exit.FAILED
    program = session.program(plan)
    session.sign_in()
    with Progress(out, f"Updating ({session.stack})", silent=args.json) as progress:
        result = session.engine(progress.listen).up(program, scope=scope)
    return _tell(session, args, out, "up", result, _planned(session, program)[1], told=told)


def preview(session: Session, args: Arguments, out: Out) -> int:
    """Show what `up` would do."""
    session.settings  # noqa: B018 - as above
    scope, planned = scope_of(session, args.targets, keep=False)
    silent, program = args.json or args.format != "tree", session.program(planned)
    with Progress(out, f"Previewing update ({session.stack})", silent=silent) as progress:
        result = session.engine(progress.listen).preview(program, scope=scope)
    reading, plan = _planned(session, program)
    if args.targets:  # policies and reports are about whole stacks
        return _tell(session, args, out, "preview", result, plan)
    report = report_live(session, result, reading, plan)
    if args.format != "tree":
        return Exit.INTERRUPTED if result.interrupted else tell(report, args, out)
    if not args.json:
        print_alerts(out, beside_the_table(report))
    code = _tell(session, args, out, "preview", result, plan)
    refused = refuse(report.violations, out)
    return refused or code if code in {Exit.OK, Exit.CHANGES} else code


def refresh(session: Session, args: Arguments, out: Out) -> int:
    """Correct the state by what is really there."""
    tell_of_watch(session, out)
    if not args.yes and not confirmed("Correct the state by what is really there?", out):
        return Exit.FAILED
    session.sign_in()
    with Progress(out, f"Refreshing ({session.stack})", silent=args.json) as progress:
        result = session.engine(progress.listen).refresh()
    return _tell(session, args, out, "refresh", result, session.plan()[1])


def destroy(session: Session, args: Arguments, out: Out) -> int:
    """Remove all that this stack made."""
    try:
        session.require_stack()
    except EngineError:
        if not forgotten(session):
            raise
    with without_watch(session, stop=args.stop_watch):
        return _destroy(session, args, out)


def _destroy(session: Session, args: Arguments, out: Out) -> int:
    if not args.yes:
        planned = session.engine(lambda _event: None).destroy(preview=True)
        if not (planned.ok and planned.unchanged):
            _ask_about(out, args, planned)
            if not confirmed("Destroy all of this?", out):
                return Exit.FAILED
    session.sign_in()
    with Progress(out, f"Destroying ({session.stack})", silent=args.json) as progress:
        result = session.engine(progress.listen).destroy()
    if result.ok:
        session.forget_readings()
    if args.json:
        _print_json(out, session, "destroy", result, ())
    else:
        print_counts(out, result, planned=False)
        _complain(out, result)
    left = forgotten(session) if result.ok else 0
    if left:
        out.error(
            f"{counted(left, 'thing')} of this stack stayed, of which its state knows nothing: `locallb gc` lists them,"
            " `locallb gc --yes` removes them"
        )
    return Exit.FAILED if left else _ending(result)


def look(plan: Plan) -> tuple[Row, ...]:
    """Ask every proxy of the plan, and tell the state of every Service."""
    return rows(plan, observe(proxy.proxy for proxy in plan.proxies))


def _planned(session: Session, program: Program) -> tuple[SnapshotResult, Plan]:
    """Return what the program read and planned; what can be read now if it broke off before.

    Raises SourceError.
    """
    return program.outcome or program.handed or session.plan()


def _tell(  # noqa: PLR0913, PLR0917 - what a run is told by
    session: Session,
    args: Arguments,
    out: Out,
    command: str,
    result: Result,
    plan: Plan,
    *,
    told: frozenset[str] = frozenset(),
) -> int:
    """Return how a run ended: the tree or the counts, the table, the complaints; nothing that was `told`, or twice."""
    table = look(plan)
    if args.json:
        _print_json(out, session, command, result, table)
    else:
        if command == "preview":
            print_steps(out, result, planned=True)
        else:
            print_counts(out, result, planned=False)
        out.line("")
        print_services(out, table, told, plan.left_out)
        _complain(out, result, told.union(*map(as_told, table)))
    if not result.ok:
        return _ending(result)
    if args.expect_no_changes and not result.unchanged:
        out.error("no changes were expected, but there are changes")
        return Exit.CHANGES
    return _served(table, args, out)


def _served(table: Sequence[Row], args: Arguments, out: Out) -> int:
    """Complain of Services in a state that `--fail-on` names, and give the exit code."""
    failing = [row for row in table if row.state in args.fail_on]
    if not failing:
        return Exit.OK
    names = ", ".join(f"{row.key} is {row.state}" for row in failing[:MOST_NAMES])
    more = f" and {len(failing) - MOST_NAMES} more" if len(failing) > MOST_NAMES else ""
    out.error(f"--fail-on {' '.join(args.fail_on)}: {names}{more}")
    return Exit.UNSERVED


def _ending(result: Result) -> int:
    """Return the exit code for how a run ended."""
    if result.interrupted:
        return Exit.INTERRUPTED
    return Exit.OK if result.ok else Exit.FAILED


def _complain(out: Out, result: Result, told: frozenset[str] = frozenset()) -> None:
    """Print errors and warnings, each once, without those that were `told`."""
    messages = {
        diagnostic.message: diagnostic.severity for diagnostic in result.diagnostics if diagnostic.message not in told
    }
    for message, severity in messages.items():
        if severity is Severity.ERROR:
            out.error(message)
        elif severity is Severity.WARNING:
            out.warning(message)


def _ask_about(out: Out, args: Arguments, planned: Result) -> frozenset[str]:
    """Show what the next question is about; return the messages that were told."""
    if args.json:
        raise Refused("--json prints one document and asks nothing; say --yes as well")
    print_steps(out, planned, planned=True)
    _complain(out, planned)
    return frozenset(diagnostic.message for diagnostic in planned.diagnostics)


def confirmed(question: str, out: Out) -> bool:
    """Ask on a terminal; anything but yes is no."""
    if not sys.stdin.isatty():
        raise Refused("there is no terminal to ask on; say --yes to go on without being asked")
    try:
        answer = input(f"{question} [y/N] ")
    except EOFError:
        out.line("")
        answer = ""
    if answer.strip().lower() in {"y", "yes"}:
        return True
    out.line("Nothing was changed.")
    return False


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
            {"severity": diagnostic.severity.value, "message": diagnostic.message, "urn": diagnostic.urn}
            for diagnostic in result.diagnostics
        ],
    }
    out.raw(json.dumps(document, indent=2, ensure_ascii=True))
