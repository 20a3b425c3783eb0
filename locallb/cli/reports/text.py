"""The report on a terminal: what matters first, then one line a Service that changes."""

from __future__ import annotations

from collections.abc import Sequence

from locallb.cli.console import Out
from locallb.report.alerts import Alert, Topic, alerts, listed, summary
from locallb.report.changes import Change, Report, ServiceChange
from locallb.report.formats.wording import SIGNS, by_gravity, reasons, shown_side
from locallb.report.safe import visible

STYLES = {
    Change.ADDED: "green",
    Change.CHANGED: "yellow",
    Change.REPAIRED: "yellow",
    Change.LOST: "bold red",
    Change.REMOVED: "red",
    Change.REJECTED: "red",
    Change.UNCHANGED: "dim",
}
MAX_ALERTS = 20


def print_report(out: Out, report: Report) -> None:
    """Print the whole report."""
    out.line((f"From {visible(report.old)} to {visible(report.new)} ({report.stack})", "bold"))
    print_alerts(out, alerts(report))
    rows = [service for service in by_gravity(report) if service.change is not Change.UNCHANGED]
    if rows:
        out.line("")
        out.table(("", "SERVICE", "ADDRESS", "PORTS", "CHANGE", "REASON"), [_cells(service) for service in rows])
    out.line("")
    for notice in report.notices:
        out.line(("note: ", "dim"), visible(notice))
    out.line(summary(report))


SHOWN_IN_TABLE = frozenset({Topic.CONFLICT, Topic.EXHAUSTION, Topic.REJECTION})


def outside_the_table(report: Report) -> list[Alert]:
    """Return what the tree of resources and the table of Services lack: former values, allowed clients, policies."""
    existing = {str(service.key) for service in report.services if service.before is None}
    return [alert for alert in alerts(report) if alert.topic not in SHOWN_IN_TABLE and alert.service not in existing]


def print_alerts(out: Out, listed: Sequence[Alert]) -> None:
    """Print the alerts that a reader must not miss.

    Omitted is what is reported as an error anyway: unreadable sources, and, if errors are printed with the report,
    violated policies.
    """
    errors = {Topic.UNREADABLE, Topic.POLICY} if out.together else {Topic.UNREADABLE}
    important = [alert for alert in listed if alert.topic not in errors]
    for alert in important[:MAX_ALERTS]:
        out.line(("! ", "bold red" if alert.topic is Topic.POLICY else "yellow"), visible(alert.message))
    if len(important) > MAX_ALERTS:
        out.line(f"  and {len(important) - MAX_ALERTS} more; `--format json` has all")


def _cells(service: ServiceChange) -> Sequence[str | tuple[str, str]]:
    side = shown_side(service)
    return (
        (SIGNS[service.change], STYLES[service.change]),
        visible(str(service.key)),
        " ".join(str(address) for address in side.addresses) if side and side.addresses else "-",
        listed(port.label for port in side.ports) if side and side.ports else "-",
        (str(service.change), STYLES[service.change]),
        visible("; ".join(reasons(service)[:2])),
    )
