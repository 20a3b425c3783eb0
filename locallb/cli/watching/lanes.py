"""What the live page draws of each load balancer: a lane from its addresses through its proxy to its backends.

Lanes are made from the plan and observations, as plain values that the page's script draws as text. A link is made of a
scheme, an address or the name of a host, a port, and a path of harmless characters: nothing else of a cluster.

Not here: who gets them and when (`page`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress

from msgspec import Struct

from locallb.cli.failures import Refused
from locallb.cli.service_output import help_of
from locallb.cli.watching.board import View
from locallb.dns.zones import is_hostname, is_wildcard, name_fault
from locallb.model.http_serving import ANY, HttpListener, HttpRoutes
from locallb.model.identities import Protocol
from locallb.model.serving import Upstream
from locallb.patterns import pattern
from locallb.planning.entrances import scheme_of, url, url_host
from locallb.planning.notices import Notice
from locallb.planning.planned import Placement, Plan, PlannedPort
from locallb.planning.service_rows import Cause, PortRow, Row, State
from locallb.report.wording import LONGEST_NAME, visible
from locallb.traffic.figures import Counts, Details, TrafficRow, upstreams_of

Document = Mapping[str, object]
Ports = Mapping[tuple[int, str], PlannedPort]
Curl = Callable[[Row, Ports], str]
"""Gives a command for a request to a load balancer. Raises Refused where there is none."""


def rates(rows: Iterable[TrafficRow], seconds: float) -> dict[str, list[Document]]:
    """Return what flowed in so many seconds, by the key of the Service; of the others nothing."""
    by_service: dict[str, list[Document]] = {}
    for row in rows:
        if row.answers and _is_alive(row.figures.total, row.figures.details):
            by_service.setdefault(str(row.key), []).append(_rates(row, seconds))
    return by_service


def _is_alive(total: Counts, details: Details | None) -> bool:
    return total != Counts() or (details is not None and bool(details.received or details.sent))


def _rates(row: TrafficRow, seconds: float) -> Document:
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


BACKENDS, HOSTS, ROUTES, NOTICES, CHANGES = 50, 50, 100, 50, 5
"""How many of each a lane has at most; of backends the rest is counted."""


class RowDifference(Struct, frozen=True):
    """What became another one of a load balancer."""

    at: float
    """When it was seen, in seconds since the epoch."""
    what: str
    before: tuple[str, ...]
    after: tuple[str, ...]


def differences(before: Row, after: Row, at: float) -> tuple[RowDifference, ...]:
    """Return in what clients meet another load balancer than before."""
    pairs = (
        ("Addresses", tuple(map(str, before.addresses)), tuple(map(str, after.addresses))),
        ("Ports", _labels(before), _labels(after)),
        ("Names", (*before.local_hosts, *before.names), (*after.local_hosts, *after.names)),
    )
    return tuple(RowDifference(at, what, former, latter) for what, former, latter in pairs if former != latter)


def _labels(row: Row) -> tuple[str, ...]:
    return tuple(port.port.label for port in row.ports)


class LaneSubject(Struct, frozen=True):
    """All that a lane is made of."""

    view: View
    placement: Placement | None = None
    """None for what gets no addresses."""
    upstreams: Sequence[Upstream] = ()
    """Where the ports of the placement lead."""
    changes: tuple[RowDifference, ...] = ()
    """The latest last."""


def lane_names(views: Iterable[View]) -> dict[str, View]:
    """Return them by a name for each. Of objects with the same key each has a lane."""
    by_name: dict[str, View] = {}
    for view in views:
        name = str(view.row.key)
        by_name[name if name not in by_name else f"{name} {view.row.reason}"] = view
    return by_name


def subjects(
    views: Iterable[View], plan: Plan, changes: Mapping[str, tuple[RowDifference, ...]] | None = None
) -> dict[str, LaneSubject]:
    """Return what lanes are made of, by their names."""
    placed = {
        placement.key: (placement, behind)
        for placement, behind in zip(plan.placements, upstreams_of(plan), strict=True)
    }
    made: dict[str, LaneSubject] = {}
    for name, view in lane_names(views).items():
        placement, behind = placed.get(view.row.key, (None, ()))
        made[name] = LaneSubject(view, placement, behind, (changes or {}).get(name, ()))
    return made


def lane(subject: LaneSubject, curl: Curl | None = None) -> Document:
    view, placement = subject.view, subject.placement
    row, ports = view.row, _planned(subject.placement)
    addresses = [str(address) for address in row.addresses]
    routes = placement.routes[:ROUTES] if placement else ()
    return {
        "name": visible(row.key.name, LONGEST_NAME),
        "place": visible(str(row.key).rpartition("/")[0], LONGEST_NAME),
        "cluster": visible(row.key.cluster, LONGEST_NAME),
        "state": str(row.state),
        "reason": visible(row.reason),
        "message": visible(row.message),
        "remedy": visible(_remedy(row)),
        **help_of(row.reason),
        "addresses": addresses,
        "hosts": [visible(host, LONGEST_NAME) for host in _hosts(row, placement)],
        "ports": _ports(row.ports, placement, subject.upstreams),
        "proxy": visible(placement.proxy, LONGEST_NAME) if placement else "",
        "routes": [visible(route) for route in routes],
        "notices": [[visible(notice.reason), visible(notice.message)] for notice in _notices(row, placement)],
        "links": dict(_links(row, ports, routes)),
        "curl": _command(row, ports, curl),
        "changes": [
            [round(each.at, 3), each.what, *(visible(", ".join(some)) for some in (each.before, each.after))]
            for each in subject.changes
        ],
        "changed": round(view.change.at, 3) if view.change else 0,
        "took": round(view.change.seconds, 3) if view.change else 0,
    }


def _remedy(row: Row) -> str:
    """Return what ends its trouble: the same for all with a common cause."""
    is_troubled = row.state is not State.SERVING and row.message
    return Cause(row.reason, row.message, (row.key,)).remedy if is_troubled else ""


def _command(row: Row, ports: Ports, curl: Curl | None) -> str:
    with suppress(Refused):
        command = curl(row, ports) if curl else ""
        return command if command.isprintable() else ""
    return ""


def _notices(row: Row, placement: Placement | None) -> list[Notice]:
    """Return the notices of a Service in addition to its state, each once."""
    return list(dict.fromkeys((*(placement.notices if placement else ()), *row.notices)))[:NOTICES]


def _hosts(row: Row, placement: Placement | None) -> list[str]:
    """Return its host names: below `localhost` first, with a port, then the stack's, then its listeners'."""
    served = (name for port in placement.ports for name in _hostnames(port)) if placement else ()
    return list(dict.fromkeys((*row.local_hosts, *row.names, *served)))[:HOSTS]


def _hostnames(port: PlannedPort) -> Iterator[str]:
    chains = [chain for listener in port.listeners if isinstance(listener, HttpListener) for chain in listener.chains]
    for chain in chains:
        yield from chain.names
        if isinstance(chain.serves, HttpRoutes):
            yield from (name for host in chain.serves.hosts for name in host.domains if name != ANY)


def _planned(placement: Placement | None) -> Ports:
    return {(port.port.port, port.port.protocol): port for port in placement.ports} if placement else {}


def _links(row: Row, ports: Ports, routes: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield the links of what a lane shows: addresses, ports, host names and routes, each by the text that is shown."""
    schemes = {port.port.number: scheme_of(port.port, port) for port in ports.values() if _is_open(port)}
    web = [(number, scheme) for number, scheme in schemes.items() if scheme]
    first_host = url_host(row.addresses[0]) if row.addresses else ""
    for port in reversed([*ports.values()]):
        scheme = schemes.get(port.port.number, "") if _is_open(port) and first_host else ""
        names = filter(_is_name, _hostnames(port))
        if scheme:
            yield port.port.label, url(scheme, first_host, port.port.number)
            yield from ((visible(name, LONGEST_NAME), url(scheme, name, port.port.number)) for name in names)
    if web:
        number, scheme = web[0]
        yield from ((str(address), url(scheme, url_host(address), number)) for address in row.addresses)
        yield from ((name, url(scheme, name, number)) for name in row.names if _is_name(name))
    for each in row.local_urls:
        if "/" not in (host := each.url.removeprefix("http://").rstrip("/")):
            yield host, each.url
    for route in routes:
        if link := _route_link(route, ports, first_host):
            yield visible(route), link


def _is_open(port: PlannedPort) -> bool:
    return port.port.protocol is Protocol.TCP and bool(port.listeners)


def _is_name(name: str) -> bool:
    return is_hostname(name) and not is_wildcard(name) and not name_fault(name)


_ROUTE = pattern(r"(\d+): (?:GET )?(\S+?)(/[\w./~-]*?)\*? → ", re.ASCII)
"""A route that a browser can follow: its port, its host, and its path or the beginning of one."""


def _route_link(route: str, ports: Ports, address: str) -> str:
    match = _ROUTE.match(route)
    port = ports.get((int(match[1]), Protocol.TCP)) if match else None
    if not match or not port or not _is_open(port) or not (scheme := scheme_of(port.port, port)):
        return ""
    host = address if match[2] == ANY else match[2] if _is_name(match[2]) else ""
    return f"{url(scheme, host, port.port.number).rstrip('/')}{match[3]}" if host else ""


def _ports(rows: Sequence[PortRow], placement: Placement | None, upstreams: Sequence[Upstream]) -> list[Document]:
    planned = {str(port.port): port for port in placement.ports} if placement else {}
    by_name = {upstream.name: upstream for upstream in upstreams}
    placed = ((row, planned.get(str(row.port))) for row in rows)
    return [_port(row, port.backends(by_name) if port else ()) for row, port in placed]


def _port(row: PortRow, backends: Sequence[str]) -> Document:
    return {
        "label": row.port.label,
        "state": str(row.state),
        "reason": visible(row.reason),
        "message": visible(row.message),
        **help_of(row.reason),
        "via": str(row.via or ""),
        "backends": list(backends[:BACKENDS]),
        "more": max(0, len(backends) - BACKENDS),
    }
