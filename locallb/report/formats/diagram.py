"""The diagram of a report as SVG: a lane for each Service, from its addresses through its proxy to its backends.

Lanes instead of shared nodes, because no line ever crosses another one: it reads the same with three Services and with
five hundred. Colours come from the page's style sheet, by the class of each lane.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from locallb.report.changes import Change, ServiceChange
from locallb.report.formats.wording import shown_side
from locallb.report.safe import html_text, visible
from locallb.report.sides import Balancer, Port

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
    """Draw the Services in the order given."""
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
