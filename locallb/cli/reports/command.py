"""Prints a report in the requested format; the exit code is the gates' result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module

from locallb.cli.arguments import Arguments
from locallb.cli.console import Out
from locallb.cli.exit_code import Exit
from locallb.cli.reports.text import print_report
from locallb.report.changes import Gate, Report, Violation
from locallb.report.safe import visible

GATES = {
    Gate.ADDRESS_CHANGES: Exit.ADDRESS_CHANGES,
    Gate.SOURCE_RANGES: Exit.SOURCE_RANGES,
    Gate.PORTS: Exit.PORTS,
    Gate.HEADROOM: Exit.HEADROOM,
    Gate.HOSTNAMES: Exit.HOSTNAMES,
    Gate.TLS: Exit.TLS,
}
"""Exit codes; of several the first counts."""
FORMATS = {"markdown": "markdown:markdown", "json": "document:document", "html": "html:page"}
"""Modules of `report.formats`, and their functions."""


def offline(args: Arguments, out: Out) -> int:
    """Compare without a stack's state, and print the report."""
    if args.from_pulumi is not None:
        from locallb.cli.reports.pulumi_preview import report_from_pulumi  # noqa: PLC0415 - hardly anybody asks for it

        report = report_from_pulumi(args.directory, args.stack, args.from_pulumi)
    else:
        from locallb.cli.reports.against import report_against  # noqa: PLC0415 - likewise

        report = report_against(args.directory, args.stack, args.against or "")
    return report_to(report, args, out)


def report_to(report: Report, args: Arguments, out: Out) -> int:
    """Print the report in its format, and give the exit code."""
    if args.format in FORMATS:
        out.document(writer(args.format)(report))
    else:
        print_report(out, report)
    return verdict(report, args, out)


def writer(form: str) -> Callable[[Report], str]:
    """Load what writes a format: none needs another's modules."""
    module, _, function = FORMATS[form].partition(":")
    loaded: Callable[[Report], str] = getattr(import_module(f"locallb.report.formats.{module}"), function)
    return loaded


def verdict(report: Report, args: Arguments, out: Out) -> int:
    """Print what is wrong and return the exit code: for unreadable sources, then policies, then changes."""
    for complaint in report.complaints:
        out.error(visible(complaint))
    refused = refuse(report.violations, out)
    if report.complaints:
        return Exit.FAILED
    if args.expect_no_changes and report.changes and not refused:
        out.error("no changes were expected, but there are changes")
        return Exit.CHANGES
    return refused


def refuse(violations: Sequence[Violation], out: Out) -> int:
    """Return what the stack's policies forbid, and give the exit code."""
    for violation in violations:
        out.error(visible(violation.message))
    broken = {violation.gate for violation in violations}
    return next((code for gate, code in GATES.items() if gate in broken), Exit.OK)
