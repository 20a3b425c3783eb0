"""Indexes of all objects by kind and of routes by parent, updated incrementally.

Most changes are of a route or two, which then replace their former versions in place. Where that isn't certain, all
objects are sorted again. This saves work and decides nothing.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from locallb.gateway.kinds import gathered
from locallb.model.gateway.objects import Named, Reference, Route, RouteKind
from locallb.model.gateway.of_cluster import GatewayObjects, ObjectOfCluster
from locallb.model.identities import ClusterName
from locallb.model.memory import few_replaced, replaced

MOST_REPLACED = 10
"""Routes that are put in the places of others; of more all are sorted again."""


class Gathering(Struct):
    """Knows what `gathered` made last. For one thread."""

    _given: Sequence[ObjectOfCluster] = ()
    _made: Mapping[ClusterName, GatewayObjects] = field(default_factory=dict)
    _each_once: bool = True
    """Whether no route is among them twice."""

    def of(self, objects: Iterable[ObjectOfCluster]) -> Mapping[ClusterName, GatewayObjects]:
        """Return what `gathered` does."""
        given = tuple(objects)
        made = self._with_other_routes(given)
        if made is None:
            made = gathered(given)
            routes = sum(isinstance(cluster_object.object, Route) for cluster_object in given)
            self._each_once = routes == sum(len(gathered_objects.routes) for gathered_objects in made.values())
        self._given, self._made = given, made
        return made

    def _with_other_routes(self, given: Sequence[ObjectOfCluster]) -> Mapping[ClusterName, GatewayObjects] | None:
        """Return the last one with other routes in the places of some; None where anything else is different."""
        where, made = replaced(self._given, given), dict(self._made)
        if where is None or not self._each_once:
            return None
        pairs = ((self._given[number], given[number]) for number in where)
        others = [(old, new) for old, new in pairs if old.object is not new.object or old.cluster != new.cluster]
        if len(others) > MOST_REPLACED:
            return None
        for (cluster, old), (its_cluster, new) in others:
            if not isinstance(old, Route) or not isinstance(new, Route) or old.reference != new.reference:
                return None
            if cluster != its_cluster:
                return None
            routes = made[cluster].routes
            place = bisect_left(routes, _rank(old), key=_rank)
            made[cluster] = replace(made[cluster], routes=(*routes[:place], new, *routes[place + 1 :]))
        return made


class RoutesByParent(Struct):
    """Knows which routes name each parent. For one thread and one cluster."""

    _routes: Sequence[Route] = ()
    _made: Mapping[Reference, tuple[Route, ...]] = field(default_factory=dict)
    _numbers: Mapping[Reference, int] = field(default_factory=dict)
    """Where each of the parents stands that were asked for together."""
    _together: tuple[Sequence[Reference], list[tuple[Route, ...]]] | None = None
    """Those, and their routes."""

    def of(self, routes: Sequence[Route]) -> Mapping[Reference, tuple[Route, ...]]:
        """Return the routes of each parent, in order; no two have a name together."""
        if not self._put_others(routes):
            self._made, self._together = _by_parent(routes), None
        self._routes = routes
        return self._made

    def each(self, parents: Sequence[Reference]) -> list[tuple[Route, ...]]:
        """Return the routes of these parents, of which no two are the same, as `of` found them last."""
        if self._together is None or self._together[0] is not parents:
            self._together = parents, [self._made.get(parent, ()) for parent in parents]
            self._numbers = {parent: number for number, parent in enumerate(parents)}
        return [*self._together[1]]

    def _put_others(self, routes: Sequence[Route]) -> bool:
        """Put others in the places of some; return whether that was all, as names and parents are the same."""
        where = few_replaced(self._routes, routes)
        pairs = [(self._routes[number], routes[number]) for number in where or ()]
        if where is None or any(old.reference != new.reference or _parents(old) != _parents(new) for old, new in pairs):
            return False
        made = dict(self._made)
        for old, new in pairs:
            for parent in _parents(old):
                made[parent] = tuple(new if route is old else route for route in made[parent])
                if self._together and parent in self._numbers:
                    self._together[1][self._numbers[parent]] = made[parent]
        self._made = made
        return True


def _by_parent(routes: Iterable[Route]) -> Mapping[Reference, tuple[Route, ...]]:
    by_parent: dict[Reference, dict[Reference, Route]] = {}
    for route in routes:
        for parent in route.parents:
            by_parent.setdefault(parent.reference, {})[route.reference] = route
    return {parent: tuple(by_reference.values()) for parent, by_reference in by_parent.items()}


def _parents(route: Route) -> list[Reference]:
    return [parent.reference for parent in route.parents]


def _rank(route: Route) -> tuple[Named, RouteKind]:
    """Return a route's sort key."""
    return route.meta.key, route.kind
