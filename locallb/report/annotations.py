"""The report as annotations of a GitHub workflow: a command to the runner in each line, which points into a manifest.

Names come from everyone with the right to open a pull request: none of them begins a command, or ends a property.
"""

from __future__ import annotations

from collections.abc import Iterator

from locallb.report.changes import Report
from locallb.report.wording import Alert, Topic, alerts, summary, visible

MAX_SHOWN = 10
"""Annotations of one level that GitHub shows of a step."""
_ERRORS = frozenset({Topic.UNREADABLE, Topic.POLICY})
_NOTICES = frozenset({Topic.EXPOSURE, Topic.NARROWING})
_ADVISORY = "(advisory)"


def workflow_commands(report: Report) -> str:
    """Write an annotation for each alert, the gravest first; the sum of all is a notice."""
    counts: dict[str, int] = {}
    lines = []
    for alert in alerts(report):
        level = _level(alert)
        counts[level] = counts.get(level, 0) + 1
        if counts[level] < MAX_SHOWN:
            lines.append(f"::{level} {','.join(_properties(report, alert))}::{_escaped(visible(alert.message))}")
    more = sum(max(0, count - MAX_SHOWN + 1) for count in counts.values())
    rest = f" {more} more annotations are left out; the report has them." if more else ""
    lines.append(f"::notice title=Load balancers ({_property(report.stack)})::{_escaped(summary(report) + rest)}")
    return "".join(f"{line}\n" for line in lines)


def _level(alert: Alert) -> str:
    if alert.topic in _ERRORS and not alert.message.endswith(_ADVISORY):
        return "error"
    return "notice" if alert.topic in _NOTICES else "warning"


def _properties(report: Report, alert: Alert) -> Iterator[str]:
    """Return what is known of an alert besides its sentence: where it is about, and its topic."""
    places = {str(key): place for key, place in report.places.items()}
    if place := places.get(alert.service):
        yield f"file={_property(place.file)}"
        yield f"line={place.fields.get(alert.field, place.line)}"
    yield f"title={_property(f'{alert.topic}: {alert.service}' if alert.service else str(alert.topic))}"


def _property(text: str) -> str:
    return _escaped(visible(text)).replace(":", "%3A").replace(",", "%2C")


def _escaped(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
