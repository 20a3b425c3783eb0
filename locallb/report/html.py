"""The report as one self-contained HTML page: a searchable table and a diagram in SVG, light and dark.

On a narrow screen each Service is a card instead of a row, and the diagram, which would be too small to read, is left
out: its content is in each Service's details. Nothing is cut but texts in the diagram, and only the diagram scrolls by
itself.

The page's only script is this package's own, named by its digest in the page's Content-Security-Policy: nothing from a
manifest can run, load or call anything. The script only filters: everything is present without it.

Not here: the content of the report (`changes`), its alerts and words (`wording`), and Markdown (`markdown`).
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Sequence
from importlib.resources import files
from math import log2

from locallb.report.changes import Change, PoolRoom, Report, ServiceChange
from locallb.report.sides import Balancer, Port
from locallb.report.wording import (
    LONGEST_NAME,
    Alert,
    alerts,
    by_gravity,
    closed,
    differences,
    html_text,
    shown_side,
    summary,
    visible,
)

WIDTH = 1240
HEAD = 40
STEP = 32
"""Pixels from one address or port to the next."""
PILL = 24
PROXY = 42
GAP = 14
ADDRESS_X, ADDRESS_WIDTH = 18, 290
PROXY_X, PROXY_WIDTH = 388, 310
PORT_X, PORT_WIDTH = 776, 96
BACKEND_X, BACKEND_WIDTH = 916, 306
NAME_LENGTH, BACKEND_LENGTH, ADDRESS_LENGTH = 36, 38, 40
"""Characters that fit."""


def diagram(services: Sequence[ServiceChange]) -> str:
    """Draw the Services in the order given: a lane for each, from its addresses through its proxy to its backends.

    Lanes instead of shared nodes, because no line ever crosses another one: the diagram reads the same with three
    Services and with five hundred. Colours come from the page's style sheet, by the class of each lane.
    """
    lanes, top = [], HEAD
    for service in services:
        height = _height(shown_side(service))
        lanes.append(_lane(service, top, height))
        top += height
    heads = ((ADDRESS_X, "Addresses"), (PROXY_X, "Proxies"), (PORT_X, "Ports"), (BACKEND_X, "Backends"))
    terms = "".join(f'<text class="head" x="{x}" y="24">{word}</text>' for x, word in heads)
    return (
        f'<svg viewBox="0 0 {WIDTH} {top + 10}" role="img" '
        f'aria-label="Addresses, proxies and backends of every Service">{terms}{"".join(lanes)}</svg>'
    )


def _height(side: Balancer | None) -> int:
    rows = max(len(side.addresses), len(side.ports), 1) if side else 1
    return max(rows * STEP, PROXY) + GAP


def _lane(service: ServiceChange, top: int, height: int) -> str:
    side, middle = shown_side(service), (height - GAP) / 2
    removed = " gone" if service.change in {Change.REMOVED, Change.LOST, Change.REJECTED} else ""
    parts = [
        _proxy(service, middle),
        *(_addresses(side, middle) if side else ()),
        *(_ports(side, middle) if side else ()),
    ]
    return (
        f'<g class="lane {service.change}{removed}" data-top="{top}" data-height="{height}" '
        f'transform="translate(0 {top})">{"".join(parts)}</g>'
    )


def _proxy(service: ServiceChange, middle: float) -> str:
    key = service.key
    where = str(key).rpartition("/")[0]
    return (
        f'<g class="proxy"><title>{html_text(key)}: {service.change}</title>'
        f"{_box(PROXY_X, middle - PROXY / 2, PROXY_WIDTH, PROXY, 9)}"
        f"{_text(PROXY_X + 14, middle - 3, key.name, NAME_LENGTH, 'strong')}"
        f"{_text(PROXY_X + 14, middle + 13, where, NAME_LENGTH + 4, 'muted')}</g>"
    )


def _addresses(side: Balancer, middle: float) -> Iterator[str]:
    for y, address in zip(_spread(len(side.addresses), middle), side.addresses, strict=True):
        yield _line(ADDRESS_X + ADDRESS_WIDTH, y, PROXY_X, middle)
        box = _box(ADDRESS_X, y - PILL / 2, ADDRESS_WIDTH, PILL, 12)
        yield f'<g class="address-pill">{box}{_text(ADDRESS_X + 14, y + 4, address, ADDRESS_LENGTH)}</g>'


def _ports(side: Balancer, middle: float) -> Iterator[str]:
    for y, port in zip(_spread(len(side.ports), middle), side.ports, strict=True):
        closed = "" if port.listens or not port.problem else " closed"
        yield (
            f'<g class="port-pill{closed}">{_line(PROXY_X + PROXY_WIDTH, middle, PORT_X, y)}'
            f"{_box(PORT_X, y - PILL / 2, PORT_WIDTH, PILL, 12)}{_text(PORT_X + 12, y + 4, port.label, 11)}"
            f"{_backends(port, y)}</g>"
        )


def _backends(port: Port, y: float) -> str:
    if not port.backends:
        return _text(BACKEND_X, y + 4, port.problem, BACKEND_LENGTH, "muted")
    first, more = port.backends[0], len(port.backends) - 1
    terms = f"{first}, {port.backends[1]}" if more else first
    terms = f"{terms} +{more - 1}" if more > 1 else terms
    terms = terms if len(terms) <= BACKEND_LENGTH else f"{first} +{more}" if more else first
    listed = ", ".join(port.backends[:50])
    return (
        f"<g><title>{html_text(listed)}</title>{_line(PORT_X + PORT_WIDTH, y, BACKEND_X, y)}"
        f"{_box(BACKEND_X, y - PILL / 2, BACKEND_WIDTH, PILL, 12)}"
        f"{_text(BACKEND_X + 14, y + 4, terms, BACKEND_LENGTH)}</g>"
    )


def _spread(count: int, middle: float) -> list[float]:
    """Return the middles of `count` things, one above another around `middle`."""
    return [middle + (number - (count - 1) / 2) * STEP for number in range(count)]


def _line(x: int, y: float, to_x: int, to_y: float) -> str:
    half = (x + to_x) / 2
    return f'<path d="M{x} {y:g}C{half:g} {y:g} {half:g} {to_y:g} {to_x} {to_y:g}"/>'


def _box(x: int, y: float, width: int, height: int, radius: int) -> str:
    return f'<rect x="{x}" y="{y:g}" width="{width}" height="{height}" rx="{radius}"/>'


def _text(x: int, y: float, terms: object, longest: int, kind: str = "") -> str:
    """Write text that is cut where it would not fit; the table has all of it."""
    text = visible(str(terms))
    cut = text if len(text) <= longest else f"{text[: longest - 1]}…"
    style = f' class="{kind}"' if kind else ""
    return f'<text{style} x="{x}" y="{y:g}">{html_text(cut)}</text>'


LONGEST_PATH = 3_000
"""Characters of a port's backends."""
BACKENDS_SHOWN = 50
"""Backends of a port that its details name."""
SEARCHED = 2_000
"""Characters of a row that the search looks at."""
_COLUMNS = ("Address", "Ports", "Clients", "Why")


def table(rows: Sequence[ServiceChange]) -> str:
    head = "".join(f'<th role="columnheader">{name}</th>' for name in ("Change", "Service", *_COLUMNS))
    body = "".join(_row(service) for service in rows)
    return (
        '<section class="card services"><header><h2>Services</h2></header>'
        f'<table id="services" role="table"><thead role="rowgroup"><tr role="row">{head}</tr></thead>'
        f'<tbody role="rowgroup">\n{body}</tbody></table>'
        f'<p class="none" id="none"{" hidden" if rows else ""}>No Service to show.</p></section>\n'
    )


def _row(service: ServiceChange) -> str:
    side, key, change = shown_side(service), service.key, service.change
    why, where = list(_why(service)), str(key).rpartition("/")[0].replace("/", " / ")
    contents = (_address_cell(service), _port_cell(side), _clients(side), _list(why))
    cells = "".join(
        f'<td role="cell" class="{name.lower()}" data-label="{name}">{f"<div>{content}</div>" if content else ""}</td>'
        for name, content in zip(_COLUMNS, contents, strict=True)
    )
    return (
        f'<tr role="row" data-change="{change}" data-text="{_searched(service, why)}">'
        f'<td role="cell" class="change"><span class="tag {change}">{change}</span></td>'
        f'<td role="cell" class="who"><div class="name">{html_text(key.name, LONGEST_NAME)}</div>'
        f'<div class="where">{html_text(where, LONGEST_NAME)}</div></td>{cells}</tr>\n'
    )


def _searched(service: ServiceChange, why: Sequence[str]) -> str:
    side = shown_side(service)
    terms = [str(service.key), *(str(address) for address in (side.addresses if side else ()))]
    for port in side.ports if side else ():
        terms += [port.label, *map(str, port.sources or ("everybody",)), *port.backends[:20]]
    return html_text(" ".join((*terms, *why)).lower(), SEARCHED)


def _address_cell(service: ServiceChange) -> str:
    before = service.before.addresses if service.before else ()
    after = service.after.addresses if service.after else ()
    removed = [f"<del>{address}</del>" for address in before if address not in after]
    return "<br>".join((*removed, *(str(address) for address in after)))


def _port_cell(side: Balancer | None) -> str:
    if side is None:
        return ""
    paths = "".join(f"<li>{_path(port)}</li>" for port in side.ports)
    details = f'<details><summary>Backends</summary><ul class="paths mono">{paths}</ul></details>' if paths else ""
    return "".join(map(_port, side.ports)) + details


def _path(port: Port) -> str:
    """Write where a port leads, or why nowhere."""
    more = len(port.backends) - BACKENDS_SHOWN
    shown = ", ".join(port.backends[:BACKENDS_SHOWN]) + (f" and {more} more" if more > 0 else "")
    return html_text(f"{port.label} → {shown or port.message or port.problem or 'not known'}", LONGEST_PATH)


def _port(port: Port) -> str:
    closed = " closed" if port.problem and not port.listens else ""
    hint = f' title="{html_text(port.message or port.problem)}"' if port.problem else ""
    return f'<span class="port mono{closed}"{hint}>{port.label}</span>'


def _clients(side: Balancer | None) -> str:
    if side is None:
        return ""
    distinct = dict.fromkeys(port.sources for port in side.ports if port.sources is not None)
    return "<br>".join(_sources(sources) for sources in distinct)


def _sources(sources: Sequence[object]) -> str:
    if not sources:
        return '<span class="everybody">everybody</span>'
    return "<br>".join(html_text(source) for source in sources[:6]) + ("<br>…" if sources[6:] else "")


def _why(service: ServiceChange) -> Iterator[str]:
    yield from (f"{problem.reason}: {problem.message}" for problem in service.problems)
    yield from differences(service)
    yield from closed(service)
    messages = [port.message for port in service.after.ports if port.message] if service.after else []
    yield from messages[:1]


def _list(sentences: Sequence[str]) -> str:
    if len(sentences) <= 1:
        return "".join(html_text(sentence) for sentence in sentences)
    return f"<ul>{''.join(f'<li>{html_text(sentence)}</li>' for sentence in sentences)}</ul>"


ALERTS_SHOWN = 20
"""Alerts that aren't folded."""
_LARGE = 10**6
"""Sizes beyond are written as a power of two."""


def page(report: Report) -> str:
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
    return files("locallb.report").joinpath(name).read_text(encoding="utf-8")


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
        f'<section class="card alerts" id="alerts"><header><h2>Needs attention</h2><span>{len(alerts)}</span></header>'
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


def _pools(rooms: Sequence[PoolRoom]) -> str:
    if not rooms:
        return ""
    return (
        '<section class="card" id="pools"><header><h2>Pools</h2></header><div class="pools">'
        f"{''.join(map(_pool, rooms))}</div></section>\n"
    )


def _pool(room: PoolRoom) -> str:
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
