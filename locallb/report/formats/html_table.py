"""The table of Services on the HTML page: a row each, with what the search looks at."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from locallb.report.changes import ServiceChange
from locallb.report.formats.wording import closed, differences, shown_side
from locallb.report.safe import LONGEST_NAME, html_text
from locallb.report.sides import Balancer, Port

LONGEST_PATH = 3_000
"""Characters of a port's backends."""
BACKENDS_SHOWN = 50
"""Backends of a port that its details name."""
SEARCHED = 2_000
"""Characters of a row that the search looks at."""
_COLUMNS = ("Address", "Ports", "Clients", "Why")


def table(rows: Sequence[ServiceChange]) -> str:
    """Write the table."""
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
    contents = (_addresses(service), _ports(side), _clients(side), _list(why))
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


def _addresses(service: ServiceChange) -> str:
    before = service.before.addresses if service.before else ()
    after = service.after.addresses if service.after else ()
    removed = [f"<del>{address}</del>" for address in before if address not in after]
    return "<br>".join((*removed, *(str(address) for address in after)))


def _ports(side: Balancer | None) -> str:
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
