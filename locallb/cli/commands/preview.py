"""The command `preview`: what `up` would do, as a tree or as a report. Not here: comparing two sides (`report`)."""

from __future__ import annotations

from locallb.cli.arguments import Arguments
from locallb.cli.console import Out
from locallb.cli.failures import Exit
from locallb.cli.reports import outside_the_table, print_alerts, refuse, report_live, report_to
from locallb.cli.run_output import Progress, report_outcome, what_was_planned
from locallb.cli.session import Session
from locallb.cli.targets import scope_of


def preview(session: Session, args: Arguments, out: Out) -> int:
    """Show what `up` would do."""
    session.settings  # noqa: B018 - a mistake in the configuration is told before anything else
    scope, handed = scope_of(session, args.targets, keep=False)
    silent, program = args.json or args.format != "tree", session.program(handed)
    with Progress(out, f"Previewing update ({session.stack})", silent=silent) as progress:
        result = program.preview(session.engine(progress.listen), scope)
    reading, plan = what_was_planned(session, program)
    if args.targets:  # policies and reports are about whole stacks
        return report_outcome(session, args, out, "preview", result, plan)
    report = report_live(session, result, reading, plan)
    if args.format != "tree":
        return Exit.INTERRUPTED if result.interrupted else report_to(report, args, out)
    if not args.json:
        print_alerts(out, outside_the_table(report))
    code = report_outcome(session, args, out, "preview", result, plan)
    refused = refuse(report.violations, out)
    return refused or code if code in {Exit.OK, Exit.CHANGES} else code
