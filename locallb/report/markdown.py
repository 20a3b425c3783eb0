"""The report as Markdown for a pull request's comment or a job's summary (GitHub, GitLab), of limited size.

What matters is above, details are folded. A report that is too long loses its details first, then unchanged Services,
then rows from the end, with a note: it is never cut in the middle.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from locallb.model.objects import Via
from locallb.model.texts import counted
from locallb.report.changes import QUIET, Change, Report, ServiceChange
from locallb.report.sides import Balancer
from locallb.report.wording import (
    SIGNS,
    Alert,
    Topic,
    alerts,
    by_gravity,
    listed,
    markdown_code,
    markdown_text,
    reasons,
    requests_summary,
    shown_side,
    summary,
)

LIMIT = 60_000
"""Bytes: a comment on GitHub may have 65,536 characters, on GitLab a million."""
MAX_ALERTS = 40
MARKS = {
    Topic.UNREADABLE: "❌",
    Topic.POLICY: "⛔",
    Topic.CONFLICT: "❌",
    Topic.EXHAUSTION: "❌",
    Topic.REJECTION: "❌",
    Topic.REMOVAL: "🗑️",
    Topic.ADDRESS: "⚠️",
    Topic.EXPOSURE: "🔓",
    Topic.NARROWING: "🔒",
}
_HEAD = "| | Service | Address | Ports | Change | Reason |\n|---|---|---|---|---|---|\n"


def markdown(report: Report, limit: int = LIMIT) -> str:
    """Write the report in at most `limit` bytes (of UTF-8), as long as the limit leaves room for a summary."""
    rows = by_gravity(report)
    loud = [service for service in rows if service.change is not Change.UNCHANGED]
    full = _written(report, rows, details=True)
    if _fits(full, limit):
        return full
    for candidate in (_written(report, rows, details=False), _written(report, loud, details=True)):
        if _fits(candidate, limit):
            return candidate
    for maximum in (MAX_ALERTS, 10, 3):
        text = _largest(report, loud, limit, maximum)
        if _fits(text, limit):
            return text
    return f"{_head(report)}\n_The rest is left out here for size; <code>--format html</code> has it._\n"


def _largest(report: Report, rows: Sequence[ServiceChange], limit: int, maximum: int) -> str:
    """Write as many rows as fit, with at most so many alerts."""
    low, high = 0, len(rows)
    while low < high:
        middle = (low + high + 1) // 2
        fits = _fits(_written(report, rows[:middle], details=False, maximum=maximum), limit)
        low, high = (middle, high) if fits else (low, middle - 1)
    return _written(report, rows[:low], details=False, maximum=maximum)


def _fits(text: str, limit: int) -> bool:
    return len(text.encode()) <= limit


def _written(report: Report, rows: Sequence[ServiceChange], *, details: bool, maximum: int = MAX_ALERTS) -> str:
    parts = [
        _head(report),
        _alerts(alerts(report), maximum),
        _table(report, rows),
        _requests(report, maximum),
    ]
    if details:
        parts.append(_details(rows))
    elif len(rows) == len(report.services):
        parts.append("_Details are left out here for size; <code>--format html</code> has them._\n")
    parts.append(_rest(report, maximum))
    return "\n".join(part for part in parts if part)


def _head(report: Report) -> str:
    return (
        f"{marker(report.stack)}\n### Load balancers of stack {markdown_code(report.stack)}\n\n"
        f"**{summary(report)}** From {markdown_code(report.old)} to {markdown_code(report.new)}.\n"
    )


def marker(stack: str) -> str:
    """Return the hidden first line, by which a job finds the comment that it wrote for a stack before."""
    return f"<!-- local-lb: stack {re.sub('[^A-Za-z0-9_.]', '-', stack)} -->"


def _alerts(alerts: Sequence[Alert], maximum: int) -> str:
    lines = [f"- {MARKS[alert.topic]} {markdown_text(alert.message)}\n" for alert in alerts[:maximum]]
    if len(alerts) > maximum:
        lines.append(f"- and {len(alerts) - maximum} more\n")
    return "".join(lines)


def _table(report: Report, rows: Sequence[ServiceChange]) -> str:
    loud = [service for service in rows if service.change is not Change.UNCHANGED]
    quiet = [service for service in rows if service.change is Change.UNCHANGED]
    table = _HEAD + "".join(_row(service) for service in loud) if loud else ""
    folded = _folded(counted(len(quiet), "unchanged Service"), _HEAD + "".join(map(_row, quiet))) if quiet else ""
    left_out = len(report.services) - len(rows)
    more = (
        f"_{counted(left_out, 'Service')} left out here for size; <code>--format html</code> has all._\n"
        if left_out
        else ""
    )
    return "\n".join(part for part in (table, folded, more) if part)


def _row(service: ServiceChange) -> str:
    cells = (
        SIGNS[service.change],
        markdown_code(service.key),
        _addresses(service),
        _ports(service),
        _emphasised(service.change),
        markdown_text("; ".join(reasons(service)[:3])),
    )
    return f"| {' | '.join(cells)} |\n"


def _emphasised(change: Change) -> str:
    return str(change) if change in QUIET else f"**{change}**"


def _addresses(service: ServiceChange) -> str:
    before, after = _joined(service.before), _joined(service.after)
    if before and after and before != after:
        return f"~~{before}~~ {after}"
    return after or (f"~~{before}~~" if before else "")


def _ports(service: ServiceChange) -> str:
    """Return the ports, with the former ones first where others come in their place."""
    side = shown_side(service)
    labels = [port.label for port in side.ports] if side else []
    before = [port.label for port in service.before.ports] if service.before else labels
    former = [label for label in before if label not in labels]
    return ", ".join([*(f"~~{label}~~" for label in former), *labels])


def _joined(balancer: Balancer | None) -> str:
    return "<br>".join(str(address) for address in balancer.addresses) if balancer else ""


def _details(rows: Sequence[ServiceChange]) -> str:
    """Write, folded, everything that differs and where every port goes, of the Services that change."""
    text = "".join(_detail(service) for service in rows if service.change is not Change.UNCHANGED)
    return _folded("Details", text) if text else ""


def _requests(report: Report, maximum: int) -> str:
    """Write which sample requests go elsewhere, as many as alerts are written."""
    if not report.requests.compared:
        return ""
    moved = report.requests.moved
    rows = "".join(
        f"| {markdown_code(each.request)} | {markdown_text(each.before)} | {markdown_text(each.after)} |\n"
        for each in moved[:maximum]
    )
    table = f"\n| Request | Before | After |\n|---|---|---|\n{rows}" if rows else ""
    more = f"\n_{len(moved) - maximum} more are left out here for size; <code>--format json</code> has all._\n"
    return f"**{requests_summary(report.requests)}**\n{table}{more if len(moved) > maximum else ''}"


_PATHS = {Via.PODS: "straight to pods ", Via.API: "through the API server to pods "}


def _detail(service: ServiceChange) -> str:
    lines = [f"**{SIGNS[service.change]}** {markdown_code(service.key)}\n"]
    lines += [f"- {markdown_text(reason)}" for reason in reasons(service)]
    lines += [f"- {markdown_text(problem.message)}" for problem in service.problems]
    for port in service.after.ports if service.after else ():
        party = listed(port.sources) if port.sources else "everybody"
        pods = _PATHS.get(port.via, "to ") if port.via else "to "
        goes = f", {pods}{listed(port.backends)}" if port.backends else ""
        lines.append(markdown_text(f"- {port.label} for {party}{goes}"))
    return "\n".join(lines) + "\n\n"


def _rest(report: Report, maximum: int) -> str:
    parts = []
    if report.settings:
        keys = ", ".join(markdown_code(f"local-lb:{key}") for key in report.settings)
        parts.append(f"The stack's configuration differs in {keys}.\n")
    if report.rooms:
        head = "| Pool | Family | Addresses | Used | Free |\n|---|---|---:|---:|---:|\n"
        rows = "".join(
            f"| {markdown_code(r.pool)} | {r.family} | {r.size} | {r.used} | {r.free} |\n" for r in report.rooms
        )
        parts.append(_folded("Pools", head + rows))
    if report.notices:
        shown = [f"- {markdown_text(notice)}\n" for notice in report.notices[:maximum]]
        parts.append(_folded(counted(len(report.notices), "notice"), "".join(shown)))
    return "\n".join(parts)


def _folded(title: str, text: str) -> str:
    return f"<details><summary>{title}</summary>\n\n{text}\n</details>\n"
