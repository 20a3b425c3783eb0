"""The traffic table: one row for each port of a Service or Gateway, from the plan and the proxies' answers.

Several ports with the same backends, as of a Gateway that serves HTTP and HTTPS, share one row: Envoy counts by
destination, and each count is shown once. Pure. Not here: how rows are printed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType

from msgspec import Struct
from msgspec.structs import replace

from locallb.model.identities import ObjectKey, ProxyName, UpstreamName
from locallb.model.serving import Upstream
from locallb.planning.planned import Placement, Plan
from locallb.traffic.figures import UpstreamFigures

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
    """Return the rows of all Services that have a proxy."""
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
