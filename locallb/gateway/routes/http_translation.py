"""Translates the routes of one port into the hosts that a proxy serves there.

A request belongs to the most specific listener of its host, and to no other one (listener isolation); there the routes
with the more specific hostname come first. With TLS the name in the client's hello decides, and a request for a host of
another listener is misdirected. Not here: ports, TLS and TCP (`gateway.translation`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from locallb.gateway.hostnames import covering, covers, specificity
from locallb.gateway.routes.attachment import Attached
from locallb.gateway.routes.backends import Upstreams
from locallb.model.gateway.objects import Route
from locallb.model.gateway.precedence import Placed, Rank, ordered, rank_among_others
from locallb.model.gateway.rules import BackendRef, Rule
from locallb.model.http.policies import Mirror
from locallb.model.http.routes import Answer, Forward, Match, Redirect, Target
from locallb.model.http.routes import Route as ServedRoute
from locallb.model.http.serving import ANY, HttpRoutes, VirtualHost
from locallb.model.identities import UpstreamName

MISDIRECTED = Answer(421)
"""To clients that reuse a connection for a host that it doesn't serve: they then open another one."""
REFUSED = Answer(500)
"""To requests of an unserved rule, as the API specifies for unsupported filters: no other rule gets them."""


class Hosted(NamedTuple):
    """A listener's hostname, and what is attached to it."""

    hostname: str
    attached: Sequence[Attached]


def http_routes(hosted: Iterable[Hosted], upstreams: Upstreams) -> HttpRoutes:
    """Return the hosts of listeners that share a port."""
    by_listener = list(hosted)
    return HttpRoutes(tuple(host for listener in by_listener for host in _hosts(listener, by_listener, upstreams)))


def https_routes(mine: Hosted, others: Iterable[Hosted], upstreams: Upstreams) -> HttpRoutes:
    """Return the hosts of a listener that is found by SNI, where requests for hosts of `others` are misdirected.

    Those for a host that no listener has are answered 404.
    """
    sibling = list(others)
    hosts = _hosts(mine, (mine, *sibling), upstreams)
    elsewhere = [other.hostname or ANY for other in sibling]
    misdirected = VirtualHost(tuple(elsewhere), (ServedRoute(Match(), MISDIRECTED),)) if elsewhere else None
    return HttpRoutes((*hosts, *([misdirected] if misdirected else [])))


def _hosts(listener: Hosted, sibling: Sequence[Hosted], upstreams: Upstreams) -> Iterator[VirtualHost]:
    """Return the hosts of one listener, except the ones of another, more specific listener."""
    served = {id(attached.route): _Served(attached.route, upstreams) for attached in listener.attached}
    routes_by_name: dict[str, list[Route]] = {listener.hostname: []}
    for attached in listener.attached:
        for name in attached.names:
            routes_by_name.setdefault(name, []).append(attached.route)
    for name in sorted(routes_by_name, key=lambda name: (specificity(name), name)):
        if home(name, sibling) is listener:
            yield VirtualHost((name or ANY,), tuple(_routes(name, routes_by_name, served)))


def home(name: str, listeners: Iterable[Hosted]) -> Hosted | None:
    """Return the listener of a hostname: the most specific one that covers it."""
    having = [listener for listener in listeners if covers(listener.hostname, name)]
    return min(having, key=lambda listener: specificity(listener.hostname), default=None)


class _Served:
    """The rules of one route, as the proxy has them; each made once."""

    def __init__(self, route: Route, upstreams: Upstreams) -> None:
        self._route, self._upstreams = route, upstreams
        self.namespace = route.meta.key.namespace
        self.matches = [
            ((rank, rank_among_others(served.match, rank)), (route.meta.age, number, place), served)
            for number, rule in enumerate(route.rules)
            for place, (rank, served) in enumerate(self._matches(rule))
        ]

    def _matches(self, rule: Rule) -> Iterator[tuple[Rank, ServedRoute]]:
        if rule.problem:
            yield from ((rank, ServedRoute(match, REFUSED)) for match, rank in rule.ranked)
            return
        action, filters, fault = self._action(rule), rule.filters, self._route.meta.failing
        for match, rank in rule.ranked:
            yield rank, ServedRoute(match, action, filters.request, filters.response, filters.cors, fault=fault)

    def _action(self, rule: Rule) -> Forward | Redirect:
        filters = rule.filters
        if filters.redirect:
            return filters.redirect
        mirrors = ((self._upstream(mirror.backend), mirror.per_million) for mirror in filters.mirrors)
        return Forward(
            tuple(
                Target(self._upstream(backend), backend.weight, backend.request, backend.response)
                for backend in rule.backends
                if backend.weight
            ),
            filters.hostname,
            filters.path,
            tuple(Mirror(name, share) for name, share in mirrors if name),
            rule.timeout,
            rule.attempt_timeout,
            rule.retry,
            rule.session,
        )

    def _upstream(self, ref: BackendRef) -> UpstreamName:
        return self._upstreams.name(self._route, ref)


def _routes(
    name: str, routes_by_name: Mapping[str, Iterable[Route]], served: Mapping[int, _Served]
) -> Iterator[ServedRoute]:
    """Return the routes of one host in the order in which they are asked, up to a refusal of everything."""
    nearest: dict[int, str] = {}
    for theirs in covering(name):
        for route in routes_by_name.get(theirs, ()):
            nearest.setdefault(id(route), theirs)
    sorted_routes = [
        Placed(
            served[route_id].namespace,
            (specificity(theirs), own, *order),
            (specificity(theirs), among_others, *order),
            match.match.method,
            match,
        )
        for route_id, theirs in nearest.items()
        for (own, among_others), order, match in served[route_id].matches
    ]
    for match, is_refused in ordered(sorted_routes):
        yield ServedRoute(match.match, REFUSED) if is_refused else match
        if match == _ALL_REFUSED:
            return


_ALL_REFUSED = ServedRoute(Match(), REFUSED)
