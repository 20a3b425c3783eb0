"""The live page's drawing of one Service, Gateway or Ingress, and its traffic rates, as plain values. Pure.

A lane leads from addresses through the proxy to backends. It is made from the plan and observations, and the page's
script draws it as text. Rates are the difference of two readings.

Not here: the readings (`traffic.reading`), and the updates for each reader of the page (`server`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct

from locallb.cli.watching.board import View
from locallb.model.http_serving import ANY, HttpListener, HttpRoutes
from locallb.model.identities import UpstreamName
from locallb.model.serving import Upstream
from locallb.planning.notices import Notice
from locallb.planning.planned import Placement, Plan, PlannedPort
from locallb.planning.status import PortRow, Row
from locallb.report.wording import LONGEST_NAME, visible
from locallb.traffic.figures import Counts, Details, TrafficRow, upstreams_of

Rates = Mapping[str, object]


def rates(rows: Iterable[TrafficRow], seconds: float) -> dict[str, list[Rates]]:
    """Return what flowed in so many seconds, by the key of the Service; nothing of those where nothing did."""
    by_service: dict[str, list[Rates]] = {}
    for row in rows:
        if row.answers and _is_alive(row.figures.total, row.figures.details):
            by_service.setdefault(str(row.key), []).append(_rates(row, seconds))
    return by_service


def _is_alive(total: Counts, details: Details | None) -> bool:
    return total != Counts() or (details is not None and bool(details.received or details.sent))


def _rates(row: TrafficRow, seconds: float) -> Rates:
    total, details = row.figures.total, row.figures.details
    counts = {"connections": total.connections, "refused": total.failed_connections}
    if row.is_http:
        counts |= {"requests": total.requests, "failed": total.failed_requests}
    if details:
        counts |= {"in": details.received, "out": details.sent}
    each_second = {name: round(count / seconds, 1) for name, count in counts.items()}
    latencies = _latencies(details) if details else {}
    return {"ports": list(row.ports), "open": total.active, **each_second, **latencies}


def _latencies(details: Details) -> Mapping[str, float]:
    times = {f"p{percent}": details.latencies.percentile(percent) for percent in (50, 99)}
    return {name: round(time, 2) for name, time in times.items() if time is not None}


BACKENDS, HOSTS, ROUTES, NOTICES = 50, 50, 100, 50
"""How many of each a lane has at most; the rest is counted."""
Document = Mapping[str, object]


class Subject(Struct, frozen=True):
    """All that a lane is made of."""

    view: View
    placement: Placement | None = None
    """None for what gets no addresses."""
    upstreams: Sequence[Upstream] = ()
    """Where the ports of the placement lead."""


def subjects(views: Iterable[View], plan: Plan) -> dict[str, Subject]:
    """Return what lanes are made of, by a name for each. Of objects with the same key each has a lane."""
    placed = {
        placement.key: (placement, behind)
        for placement, behind in zip(plan.placements, upstreams_of(plan), strict=True)
    }
    by_name: dict[str, Subject] = {}
    for view in views:
        name = str(view.row.key)
        subject = Subject(view, *placed.get(view.row.key, (None, ())))
        by_name[name if name not in by_name else f"{name} {view.row.reason}"] = subject
    return by_name


def lane(subject: Subject) -> Document:
    """Return the lane of one Service."""
    view, placement = subject.view, subject.placement
    row, where = view.row, str(view.row.key).rpartition("/")[0]
    return {
        "name": visible(row.key.name, LONGEST_NAME),
        "place": visible(where, LONGEST_NAME),
        "state": str(row.state),
        "reason": visible(row.reason),
        "message": visible(row.message),
        "addresses": [str(address) for address in row.addresses],
        "hosts": [visible(host, LONGEST_NAME) for host in _hosts(row.names, placement)],
        "ports": _ports(row.ports, placement, subject.upstreams),
        "proxy": visible(placement.proxy, LONGEST_NAME) if placement else "",
        "routes": [visible(route) for route in placement.routes[:ROUTES]] if placement else [],
        "notices": [[visible(notice.reason), visible(notice.message)] for notice in _notices(row, placement)],
        "changed": round(view.change.at, 3) if view.change else 0,
        "took": round(view.change.seconds, 3) if view.change else 0,
    }


def _notices(row: Row, placement: Placement | None) -> list[Notice]:
    """Return the notices of a Service in addition to its state, each once."""
    return list(dict.fromkeys((*(placement.notices if placement else ()), *row.notices)))[:NOTICES]


def _hosts(names: Sequence[str], placement: Placement | None) -> list[str]:
    """Return the Service's host names: those of the stack's zones first, then those of its listeners."""
    served = (name for port in placement.ports for name in _hostnames(port)) if placement else ()
    return list(dict.fromkeys((*names, *served)))[:HOSTS]


def _hostnames(port: PlannedPort) -> Iterator[str]:
    chains = [chain for listener in port.listeners if isinstance(listener, HttpListener) for chain in listener.chains]
    for chain in chains:
        yield from chain.names
        if isinstance(chain.serves, HttpRoutes):
            yield from (name for host in chain.serves.hosts for name in host.domains if name != ANY)


def _ports(rows: Sequence[PortRow], placement: Placement | None, upstreams: Sequence[Upstream]) -> list[Document]:
    planned = {str(port.port): port for port in placement.ports} if placement else {}
    by_name = {upstream.name: upstream for upstream in upstreams}
    return [_port(row, _backends(planned.get(str(row.port)), by_name)) for row in rows]


def _backends(port: PlannedPort | None, upstreams: Mapping[UpstreamName, Upstream]) -> list[str]:
    behind = [name for name in port.upstreams if name in upstreams] if port else []
    return list(dict.fromkeys(str(backend) for name in behind for backend in upstreams[name].backends))


def _port(row: PortRow, backends: Sequence[str]) -> Document:
    return {
        "label": row.port.label,
        "state": str(row.state),
        "reason": visible(row.reason),
        "message": visible(row.message),
        "via": str(row.via or ""),
        "backends": list(backends[:BACKENDS]),
        "more": max(0, len(backends) - BACKENDS),
    }
