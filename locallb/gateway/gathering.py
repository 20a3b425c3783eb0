"""The index of routes by parent, updated incrementally.

Most changes are of a route or two, which then replace their former versions in place. Where that isn't certain, all
routes are sorted again. This saves work and decides nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct, field

from locallb.model.gateway.objects import Reference, Route
from locallb.model.memory import few_replaced


class RoutesByParent(Struct):
    """Knows which routes name each parent. For one thread and one cluster."""

    _routes: Sequence[Route] = ()
    _made: Mapping[Reference, tuple[Route, ...]] = field(default_factory=dict)
    _numbers: Mapping[Reference, int] = field(default_factory=dict)
    """Indexes of the last requested parents."""
    _together: tuple[Sequence[Reference], list[tuple[Route, ...]]] | None = None
    """The last requested parents, and their routes."""

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
