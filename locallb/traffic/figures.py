"""The traffic of proxies: figures and log lines, parsed from Envoy's answers and messages, and their table. Pure.

Counts by backend are always present: Envoy keeps them for any configured statistics. Bytes and latencies are statistics
of the cluster, present if the stack requests them. Log messages are OpenTelemetry's logs in protobuf's encoding, of
which only texts in known places are used. Not here: queries and sockets (`reading`), and printing (`cli.traffic`).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from ipaddress import ip_address
from operator import add
from types import MappingProxyType

from msgspec import Struct, field
from msgspec.structs import astuple, replace

from locallb.envoy.bootstrap import REJECTIONS
from locallb.envoy.clusters import LATENCY, RECEIVED, SENT
from locallb.envoy.listeners import NONE
from locallb.model.fields import JsonObject
from locallb.model.identities import ObjectKey, ProxyName, UpstreamName, place
from locallb.model.serving import Upstream
from locallb.planning.planned import Placement, Plan

_BODIES = (1, 2, 2, 5, 6, 1)
"""Numbers of the fields that lead to what a line has: resources, scopes, records, bodies, lists, values."""
_RECORDS, _VALUES = _BODIES[:3], _BODIES[3:]
_TEXT = 1
_LENGTH_DELIMITED, _FIXED = 2, {1: 8, 5: 4}


class Line(Struct, frozen=True):
    """A connection, or a request, that has ended."""

    time: str
    listener: str
    client: str
    backend: str
    """Empty where it came to none."""
    received: int
    sent: int
    milliseconds: int
    flags: tuple[str, ...] = ()
    """What Envoy found wrong, such as `UpstreamConnectionFailure`."""
    protocol: str = ""
    """Empty for a connection; the rest is of requests."""
    method: str = ""
    host: str = ""
    path: str = ""
    status: int = 0


def lines(message: bytes) -> Iterator[Line]:
    """Read a message. Raises ValueError for one that isn't of this kind."""
    for record in _inside([message], _RECORDS):
        yield _line(dict(map(_pair, _inside([record], _VALUES))))


def services_by_listener(plan: Plan) -> Mapping[str, ObjectKey]:
    return {
        listener.name: placement.key
        for placement in plan.placements
        for planned in placement.ports
        for listener in planned.listeners
    }


def _line(values: Mapping[str, str]) -> Line:
    def text(name: str) -> str:
        value = values.get(name, NONE)
        return "" if value == NONE else value

    def number(name: str) -> int:
        return int(text(name) or 0)

    return Line(
        *(text("time"), text("listener"), text("client"), text("backend")),
        *(number("in"), number("out"), number("milliseconds")),
        tuple(filter(None, text("flags").split(","))),
        *(text("protocol"), text("method"), text("host"), text("path")),
        number("status"),
    )


def _pair(message: bytes) -> tuple[str, str]:
    """Read a name and a text."""
    key, value = dict(_fields(message)).get(1, b""), dict(_fields(message)).get(2, b"")
    return key.decode(errors="replace"), dict(_fields(value)).get(_TEXT, b"").decode(errors="replace")


def _inside(messages: Iterable[bytes], numbers: Iterable[int]) -> Iterable[bytes]:
    """Follow numbers of fields into messages."""
    for wanted in numbers:
        messages = [content for message in messages for number, content in _fields(message) if number == wanted]
    return messages


def _fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the fields of a message that have a length."""
    at = 0
    while at < len(message):
        tag, at = _number(message, at)
        if tag & 7 == _LENGTH_DELIMITED:
            size, at = _number(message, at)
            yield tag >> 3, message[at : at + size]
            at += size
        elif tag & 7:
            at += _FIXED.get(tag & 7, len(message))
        else:
            _, at = _number(message, at)


def _number(message: bytes, at: int) -> tuple[int, int]:
    """Read a number of variable length; return where it ended."""
    value = shift = 0
    while at < len(message):
        byte = message[at]
        value |= (byte & 0x7F) << shift
        shift, at = shift + 7, at + 1
        if byte < 0x80:  # noqa: PLR2004 - the highest bit says that another one follows
            return value, at
    raise ValueError("a number ends in the middle")


_WHOLE = 100


class Counts(Struct, frozen=True):
    """Results of connections and requests since their proxy was configured with the backend."""

    connections: int = 0
    """Connections that a backend accepted."""
    failed_connections: int = 0
    """Attempts that it didn't take; the client may have been served by another backend."""
    active: int = 0
    """Connections that are open now."""
    requests: int = 0
    """Of HTTP."""
    failed_requests: int = 0
    """Answered with 500 and more, or not at all."""

    def __add__(self, other: Counts) -> Counts:
        return Counts(*(map(add, astuple(self), astuple(other))))

    def since(self, before: Counts) -> Counts:
        """Return what came after an earlier look; all of it where the counting began again in between."""
        if any(count < earlier for name, count, earlier in _pairs(self, before) if name != "active"):
            return self
        gained = {name: count - earlier for name, count, earlier in _pairs(self, before)}
        return Counts(**{**gained, "active": self.active})


def _pairs(counts: Counts, before: Counts) -> Iterable[tuple[str, int, int]]:
    return zip(counts.__struct_fields__, astuple(counts), astuple(before), strict=True)


class Bin(Struct, frozen=True):
    """A range of values, of which `low` is the least."""

    low: float
    width: float


class Latencies(Struct, frozen=True):
    """How many requests took how long, in milliseconds.

    A histogram in the bins that Envoy counts in. These are the same everywhere, so that adding counts bin by bin loses
    nothing; percentiles of proxies can't be added.
    """

    counts: Mapping[Bin, int] = field(default_factory=dict)

    def __add__(self, other: Latencies) -> Latencies:
        return Latencies(Counter(self.counts) + Counter(other.counts))

    @property
    def total(self) -> int:
        """Return how many there are."""
        return sum(self.counts.values())

    def percentile(self, percent: float) -> float | None:
        """Return the time within which so many of a hundred were answered; None without any."""
        rank, passed = self.total * percent / _WHOLE, 0
        for latency_bin in sorted(self.counts, key=lambda latency_bin: latency_bin.low):
            count = self.counts[latency_bin]
            if count and passed + count >= rank:
                return latency_bin.low + latency_bin.width * max(0.0, rank - passed) / count
            passed += count
        return None

    def since(self, before: Latencies) -> Latencies:
        """Return what came after an earlier look; all of it where the counting began again in between."""
        if any(self.counts.get(latency_bin, 0) < count for latency_bin, count in before.counts.items()):
            return self
        return Latencies(Counter(self.counts) - Counter(before.counts))


class Details(Struct, frozen=True):
    """What a proxy counts only where the stack asks for it."""

    received: int = 0
    """Bytes from clients to backends."""
    sent: int = 0
    """Bytes from backends to clients."""
    latencies: Latencies = field(default_factory=Latencies)

    def __add__(self, other: Details) -> Details:
        return Details(self.received + other.received, self.sent + other.sent, self.latencies + other.latencies)

    def since(self, before: Details) -> Details:
        """Return what came after an earlier look; all of it where the counting began again in between."""
        if self.received < before.received or self.sent < before.sent:
            return self
        latencies = self.latencies.since(before.latencies)
        return Details(self.received - before.received, self.sent - before.sent, latencies)


class UpstreamFigures(Struct, frozen=True):
    """What flowed to the backends of one upstream of a proxy."""

    backends: Mapping[str, Counts] = field(default_factory=dict)
    """By `address:port`."""
    details: Details | None = None
    """None where its proxy doesn't count them."""

    def __add__(self, other: UpstreamFigures) -> UpstreamFigures:
        places = sorted({*self.backends, *other.backends})
        both = {place: self.backends.get(place, Counts()) + other.backends.get(place, Counts()) for place in places}
        existing = [figures.details for figures in (self, other) if figures.details]
        return UpstreamFigures(both, sum(existing[1:], existing[0]) if existing else None)

    @property
    def total(self) -> Counts:
        """Return the counts of all backends together."""
        return sum(self.backends.values(), Counts())

    def since(self, before: UpstreamFigures) -> UpstreamFigures:
        """Return what came after an earlier look."""
        gained = {place: counts.since(before.backends.get(place, Counts())) for place, counts in self.backends.items()}
        details = self.details.since(before.details) if self.details and before.details else self.details
        return UpstreamFigures(gained, details)


STATISTICS = rf"^(cluster\.[^.]*\.({RECEIVED}|{SENT}|{LATENCY})|{'|'.join(map(re.escape, REJECTIONS))})$"
"""Which statistics to ask for."""


def by_upstream(clusters: Sequence[JsonObject], statistics: Sequence[JsonObject]) -> Mapping[str, UpstreamFigures]:
    details = _details(statistics)
    named = {str(cluster.get("name")): cluster for cluster in clusters}
    return {name: UpstreamFigures(_backends(cluster), details.get(name)) for name, cluster in named.items()}


def rejected(statistics: Sequence[JsonObject]) -> int | None:
    """Return how many requests were rejected by their form; None where the proxy doesn't count them."""
    counts = [int(each["value"]) for each in statistics if each.get("name") in REJECTIONS]
    return sum(counts) if counts else None


def _backends(cluster: JsonObject) -> Mapping[str, Counts]:
    counted: dict[str, Counts] = {}
    for host in cluster.get("host_statuses", ()):
        with suppress(KeyError, ValueError, TypeError):  # a backend that has no address of ours
            if "pipe" in host["address"]:
                name = str(host["hostname"])
            else:
                where = host["address"]["socket_address"]
                name = place(ip_address(where["address"]), int(where["port_value"]))
            counted[name] = counted.get(name, Counts()) + _counts(host.get("stats", ()))
    return counted


def _counts(statistics: Sequence[JsonObject]) -> Counts:
    numbers = {str(statistic.get("name")): int(statistic.get("value", 0)) for statistic in statistics}
    attempts, failed = numbers.get("cx_total", 0), numbers.get("cx_connect_fail", 0)
    answered = numbers.get("rq_success", 0) + numbers.get("rq_error", 0)
    return Counts(attempts - failed, failed, numbers.get("cx_active", 0), answered, numbers.get("rq_error", 0))


def _details(statistics: Sequence[JsonObject]) -> Mapping[str, Details]:
    numbers: dict[str, dict[str, int]] = {}
    latencies: dict[str, Latencies] = {}
    for statistic in statistics:
        if "histograms" in statistic:
            latencies |= _histograms(statistic["histograms"])
        elif isinstance(statistic.get("value"), int) and statistic.get("name") not in REJECTIONS:
            _, upstream, word = str(statistic["name"]).split(".")
            numbers.setdefault(upstream, {})[word] = statistic["value"]
    return {
        upstream: Details(terms.get(SENT, 0), terms.get(RECEIVED, 0), latencies.get(upstream, Latencies()))
        for upstream, terms in numbers.items()
    }


def _histograms(stated: JsonObject) -> Mapping[str, Latencies]:
    """Read bins since the beginning, such as `{"lower_bound": 1, "width": 0.1, "count": 3}`."""
    return {
        str(histogram["name"]).split(".")[1]: Latencies(
            {
                Bin(float(total["lower_bound"]), float(total["width"])): int(total["count"])
                for total in histogram.get("totals", ())
            }
        )
        for histogram in stated.get("details", ())
    }


Read = Mapping[ProxyName, Mapping[str, UpstreamFigures]]
"""Figures by upstream, of each proxy that answered."""
_NONE: Mapping[ProxyName, int] = MappingProxyType({})


class TrafficRow(Struct, frozen=True):
    """What flows through ports of a Service."""

    key: ObjectKey
    ports: tuple[str, ...]
    is_http: bool
    answers: bool
    """Whether its proxy does."""
    figures: UpstreamFigures
    rejected: int | None = None
    """In the first row of HTTP of a Gateway or a class of Ingresses: requests that its proxy rejected by their form."""

    @property
    def name(self) -> tuple[ObjectKey, tuple[str, ...]]:
        """Return what tells it from others."""
        return self.key, self.ports


def traffic_rows(plan: Plan, read: Read, rejections: Mapping[ProxyName, int] = _NONE) -> tuple[TrafficRow, ...]:
    """Return the rows of all Services that have a proxy.

    Several ports with the same backends, as of a Gateway that serves HTTP and HTTPS, share one row: Envoy counts by
    destination, and each count is shown once.
    """
    return tuple(
        row
        for placement, upstreams in zip(plan.placements, upstreams_of(plan), strict=True)
        for row in _with_rejections(
            [*_of_placement(placement, upstreams, read.get(placement.proxy))], rejections.get(placement.proxy)
        )
    )


def _with_rejections(rows: Sequence[TrafficRow], rejected: int | None) -> Sequence[TrafficRow]:
    first_http = next((row for row in rows if row.is_http), None)
    return [replace(row, rejected=rejected) if row is first_http else row for row in rows]


def upstreams_of(plan: Plan) -> Iterator[Sequence[Upstream]]:
    """Yield what is behind each placement: its part of a proxy that is the stack's, or all that its own proxy has."""
    of_proxies = {planned.proxy.name: planned.proxy.upstreams for planned in plan.proxies}
    for placement in plan.placements:
        part = placement.part
        yield part.part.upstreams if part else of_proxies.get(placement.proxy, ())


def first(plan: Plan, maximum: int) -> tuple[Plan, int]:
    """Return the plan of the first Services that fit, with at most so many rows, and how many rows are left out."""
    counts = Counter(row.key for row in traffic_rows(plan, {}))
    placements = tuple(_fitting(plan.placements, counts, maximum))
    names = {placement.proxy for placement in placements}
    proxies = tuple(planned for planned in plan.proxies if planned.proxy.name in names)
    left_out = sum(counts.values()) - sum(counts[placement.key] for placement in placements)
    return replace(plan, placements=placements, proxies=proxies), left_out


def since(current: Iterable[TrafficRow], before: Iterable[TrafficRow]) -> tuple[TrafficRow, ...]:
    """Return the traffic between two samples: none if the first is empty, since its time is then unknown."""
    earlier = {row.name: row.figures for row in before if row.answers}
    return tuple(replace(row, figures=row.figures.since(earlier.get(row.name, row.figures))) for row in current)


def _fitting(placements: Iterable[Placement], counts: Mapping[ObjectKey, int], maximum: int) -> Iterator[Placement]:
    """Yield the items that still fit: one with too many rows is skipped in favour of the next."""
    for placement in placements:
        if counts[placement.key] <= maximum:
            maximum -= counts[placement.key]
            yield placement


def _of_placement(
    placement: Placement, upstreams: Sequence[Upstream], read: Mapping[str, UpstreamFigures] | None
) -> Iterator[TrafficRow]:
    http = {upstream.name for upstream in upstreams if upstream.http}
    for names, ports in _together(placement).items():
        figures = sum(((read or {}).get(name, UpstreamFigures()) for name in names), UpstreamFigures())
        yield TrafficRow(placement.key, ports, any(name in http for name in names), read is not None, figures)


def _together(placement: Placement) -> Mapping[tuple[str, ...], tuple[str, ...]]:
    """Return ports by the upstreams to which they lead; where these overlap, all of both."""
    groups: list[tuple[set[UpstreamName], list[str]]] = []
    for planned in placement.ports:
        names, ports = set(planned.upstreams), [str(planned.port)]
        for group in [group for group in groups if group[0] & names]:
            groups.remove(group)
            names, ports = names | group[0], [*group[1], *ports]
        groups.append((names, ports))
    return {tuple(sorted(names)) or (f"none behind {ports[0]}",): tuple(ports) for names, ports in groups}
