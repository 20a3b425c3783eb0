"""The report as one HTML page that needs nothing else: a searchable table, a diagram, light and dark.

On a narrow screen each Service is a card instead of a row, and the diagram, which would be too small to read, is left
out: what it shows stands in each Service's details. Nothing is cut, and nothing but the diagram scrolls by itself.

The page's only script is this package's own, named by its digest in the page's Content-Security-Policy: nothing that a
manifest says can run, load or call anything. Everything is there without the script as well; it only filters.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from importlib.resources import files
from math import log2

from locallb.report.alerts import Alert, alerts, summary
from locallb.report.changes import Change, Report, ServiceChange
from locallb.report.formats.diagram import diagram
from locallb.report.formats.html_table import table
from locallb.report.formats.wording import by_gravity
from locallb.report.pool_room import Room
from locallb.report.safe import html_text

ALERTS_SHOWN = 20
"""Alerts that aren't folded."""
_LARGE = 10**6
"""Sizes beyond are written as a power of two."""


def page(report: Report) -> str:
    """Write the page."""
    style, script = _asset("page.css"), _asset("page.js")
    rows = by_gravity(report)
    return "".join(
        (
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n',
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n',
            f'<meta http-equiv="Content-Security-Policy" content="{_policy(style, script)}">\n',
            f"<title>Load balancers of {html_text(report.stack)}</title>\n<style>{style}</style>\n</head>\n",
            "<body>\n<main>\n",
            _head(report),
            _alerts(alerts(report)),
            _tools(report),
            table(rows),
            _diagram(rows),
            _pools(report.rooms),
            _notes(report),
            f"</main>\n<script>{script}</script>\n</body>\n</html>\n",
        )
    )


def _asset(name: str) -> str:
    return files("locallb.report.formats").joinpath(name).read_text(encoding="utf-8")


def _policy(style: str, script: str) -> str:
    return (
        f"default-src 'none'; style-src 'sha256-{_digest(style)}'; script-src 'sha256-{_digest(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _head(report: Report) -> str:
    return (
        f"<h1>Load balancers of stack {html_text(report.stack)}</h1>\n"
        f'<p class="sub">From <code>{html_text(report.old)}</code> to <code>{html_text(report.new)}</code>. '
        f"{html_text(summary(report))}</p>\n"
    )


def _alerts(alerts: Sequence[Alert]) -> str:
    if not alerts:
        return ""
    shown, folded = alerts[:ALERTS_SHOWN], alerts[ALERTS_SHOWN:]
    more = f"<details><summary>{len(folded)} more</summary>{_alert_list(folded)}</details>\n" if folded else ""
    return (
        f'<section class="card alerts" id="alerts"><header><h2>To look at</h2><span>{len(alerts)}</span></header>'
        f"{_alert_list(shown)}{more}</section>\n"
    )


def _alert_list(alerts: Sequence[Alert]) -> str:
    items = "".join(
        f'<li><b class="tag {alert.topic}">{alert.topic}</b><span>{html_text(alert.message)}</span></li>\n'
        for alert in alerts
    )
    return f"<ul>\n{items}</ul>"


def _tools(report: Report) -> str:
    chips = "".join(
        f'<button type="button" class="chip {change}" data-change="{change}" aria-pressed="false">'
        f"{change}<b>{count}</b></button>"
        for change in Change
        if (count := report.count(change))
    )
    return (
        '<div class="tools"><input id="search" type="search" placeholder="Search" '
        f'aria-label="Search name, address, port, client, reason" aria-keyshortcuts="/" '
        f'title="Name, address, port, client, reason; press / to come here, Escape to show all" '
        f'autocomplete="off" spellcheck="false"><div class="chips">{chips}</div>'
        f'<span class="hits" id="hits" aria-live="polite">{len(report.services)}</span></div>\n'
    )


def _diagram(rows: Sequence[ServiceChange]) -> str:
    if not rows:
        return ""
    present = [change for change in Change if any(row.change is change for row in rows)]
    legend = "".join(f'<span class="{change}">{change}</span>' for change in present)
    return (
        '<section class="card" id="diagram"><header><h2>Paths</h2><span>addresses → proxies → backends</span>'
        f'<div class="legend">{legend}</div></header>'
        f'<div class="scroll" tabindex="0" role="region" aria-label="Diagram">{diagram(rows)}</div></section>\n'
    )


def _pools(rooms: Sequence[Room]) -> str:
    if not rooms:
        return ""
    return (
        '<section class="card" id="pools"><header><h2>Pools</h2></header><div class="pools">'
        f"{''.join(map(_pool, rooms))}</div></section>\n"
    )


def _pool(room: Room) -> str:
    used, held = (100 * part / room.size for part in (room.used, room.unavailable))
    rest = f", {_number(room.unavailable)} unavailable" if room.unavailable else ""
    return (
        f"<div><p><b>{html_text(room.pool)}</b><span>{room.family}: {_number(room.used)} used, "
        f"{_number(room.free)} of {_number(room.size)} free{rest}</span></p>"
        f'<svg class="bar" viewBox="0 0 100 8" preserveAspectRatio="none" role="img" aria-label="{used:.0f} % used">'
        f'<rect class="used" width="{used:.2f}" height="8"/>'
        f'<rect class="held" x="{used:.2f}" width="{held:.2f}" height="8"/></svg></div>'
    )


def _number(count: int) -> str:
    return str(count) if count < _LARGE else f"≈ 2^{round(log2(count))}"


def _notes(report: Report) -> str:
    keys = [f"The stack's configuration differs in local-lb:{key}." for key in report.settings]
    notes = [*keys, *report.notices]
    if not notes:
        return ""
    items = "".join(f"<li>{html_text(note)}</li>" for note in notes)
    return f'<section class="card"><header><h2>Notes</h2></header><ul class="notes">{items}</ul></section>\n'
