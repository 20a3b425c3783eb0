"""Indexes of all objects by kind and of routes by parent, updated incrementally.

Most changes are of a route or two, which then are put in the places of those that they were before. Where that can't be
said for sure all are sorted again. It saves work and decides nothing.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import repeat
from operator import is_

from locallb.gateway.kinds import gathered
from locallb.model.gateway.objects import Named, Reference, Route, RouteKind
from locallb.model.gateway.of_cluster import ApiObject, GatewayObjects, ObjectOfCluster
from locallb.model.identities import ClusterName
from locallb.model.memory import few_replaced


@dataclass(slots=True)
class Gathering:
    """Knows what `gathered` made last. For one thread."""

    _clusters: Sequence[ClusterName] = ()
    _objects: Sequence[ApiObject] = ()
    _made: Mapping[ClusterName, GatewayObjects] = field(default_factory=dict)

    def of(self, objects: Iterable[ObjectOfCluster]) -> Mapping[ClusterName, GatewayObjects]:
        """Return what `gathered` does."""
        given = tuple(objects)
        clusters, each = [one.cluster for one in given], [one.object for one in given]
        made = self._with_other_routes(each) if clusters == self._clusters else None
        self._clusters, self._objects, self._made = clusters, each, gathered(given) if made is None else made
        return self._made

    def _with_other_routes(self, objects: Sequence[ApiObject]) -> Mapping[ClusterName, GatewayObjects] | None:
        """Return the last one with other routes in the places of some; None where anything else is different."""
        where, made = few_replaced(self._objects, objects), dict(self._made)
        if where is None:
            return None
        for number in where:
            old, new, cluster = self._objects[number], objects[number], self._clusters[number]
            if not isinstance(old, Route) or not isinstance(new, Route) or old.reference != new.reference:
                return None
            if any(map(is_, objects, repeat(old))):  # it still stands somewhere else
                return None
            routes = made[cluster].routes
            place = bisect_left(routes, _rank(old), key=_rank)
            if routes[place] is not old:  # another one of that name counts
                return None
            made[cluster] = replace(made[cluster], routes=(*routes[:place], new, *routes[place + 1 :]))
        return made


@dataclass(slots=True)
class RoutesByParent:
    """Knows which routes name each parent. For one thread and one cluster."""

    _routes: Sequence[Route] = ()
    _made: Mapping[Reference, tuple[Route, ...]] = field(default_factory=dict)

    def of(self, routes: Sequence[Route]) -> Mapping[Reference, tuple[Route, ...]]:
        """Return the routes of each parent, in order; no two have a name together."""
        made = self._with_others(routes)
        self._routes, self._made = routes, _by_parent(routes) if made is None else made
        return self._made

    def _with_others(self, routes: Sequence[Route]) -> Mapping[Reference, tuple[Route, ...]] | None:
        """Return the last one with others in the places of some; None where names or parents are different."""
        where, made = few_replaced(self._routes, routes), dict(self._made)
        if where is None:
            return None
        for number in where:
            old, new = self._routes[number], routes[number]
            if old.reference != new.reference or _parents(old) != _parents(new):
                return None
            for parent in _parents(old):
                made[parent] = tuple(new if one is old else one for one in made[parent])
        return made


def _by_parent(routes: Iterable[Route]) -> Mapping[Reference, tuple[Route, ...]]:
    found: dict[Reference, dict[Reference, Route]] = {}
    for route in routes:
        for parent in route.parents:
            found.setdefault(parent.reference, {})[route.reference] = route
    return {parent: tuple(some.values()) for parent, some in found.items()}


def _parents(route: Route) -> list[Reference]:
    return [parent.reference for parent in route.parents]


def _rank(route: Route) -> tuple[Named, RouteKind]:
    """Return where a route stands among others."""
    return route.meta.key, route.kind
