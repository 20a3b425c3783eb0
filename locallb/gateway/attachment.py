"""Attachment of routes to listeners, and the verdict of each parent on a route.

Not here: listeners themselves (`gateway.listeners`), backends of rules (`gateway.routes`), and how it
becomes a status (`gateway.statuses`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from locallb.gateway.conditions import INCOMPATIBLE_FILTERS, UNSUPPORTED, Failure
from locallb.gateway.listeners import KINDS, MAX_ENTRIES, BoundListener, Capacity, intersection, intersections
from locallb.model.gateway_objects import GatewayRoute, ParentRef, RouteKind, TlsMode
from locallb.model.gateway_rules import FIRST, RouteRule
from locallb.model.http_routes import SIZE_OF_ONE
from locallb.model.texts import any_of, clipped

_BY_NAME = frozenset({RouteKind.HTTP, RouteKind.GRPC, RouteKind.TLS})
_EXCLUSIVE = frozenset({RouteKind.HTTP, RouteKind.GRPC})
_Claimed: TypeAlias = defaultdict[tuple[int, RouteKind], set[str]]
"""The hostnames to which routes of a kind are attached, by number of the listener."""


class Attached(NamedTuple):
    """A route at a listener, and their common hostnames; an empty one is every one."""

    route: GatewayRoute
    names: tuple[str, ...]
    accepted: bool = True
    """False: its requests are answered with an error, lest they reach what they weren't meant for."""


class ParentVerdict(Struct, frozen=True):
    """The verdict of one of a route's parents: accepted, or why not."""

    route: GatewayRoute
    parent: ParentRef
    accepted: Failure | None = None
    places: tuple[int, ...] = ()
    """Numbers of the listeners it is attached to."""
    ends_tls: bool = False
    """Whether one of these terminates TLS, so that backends get other bytes than clients sent."""


class Attachment(Struct, frozen=True):
    """All that is attached to the listeners of one Gateway."""

    routes: Mapping[int, tuple[Attached, ...]]
    """Routes by number of the listener, in the order of age, including unaccepted ones."""
    verdicts: tuple[ParentVerdict, ...]


def attach(
    listeners: Sequence[BoundListener], routes: Iterable[GatewayRoute], namespaces: Mapping[str, Mapping[str, str]]
) -> Attachment:
    """Attach routes, the oldest first, to one Gateway's listeners."""
    owners = {bound.owner for bound in listeners}
    attached: dict[int, list[Attached]] = {}
    claimed: _Claimed = defaultdict(set)
    verdicts = []
    capacity = Capacity(MAX_ENTRIES)
    for number, bound in enumerate(listeners):
        capacity.open(number, bound.listener.hostname)
    for route in sorted(routes, key=lambda route: (route.meta.age, route.kind)):
        refused: GatewayRoute | None = None
        for parent in route.parents:
            if parent.reference in owners:
                places, why = _places(route, parent, listeners, namespaces, claimed)
                if not why and (why := invalid(route) or _too_much(route, places, capacity)):
                    refused = refused or _refused(route, why, has_room=not _too_much(route, places, capacity))
                verdicts.append(_verdict(route, parent, why, places, listeners))
                served = refused if why and refused else route
                for number, names in places.items():
                    _add(attached.setdefault(number, []), Attached(served, names, not why))
                    claimed[number, route.kind].update(() if why else names)
                    if not why or _matches(served) == _matches(route):
                        capacity.attach(number, names, _matches(served))
    return Attachment({number: tuple(of_listener) for number, of_listener in attached.items()}, tuple(verdicts))


def _verdict(
    route: GatewayRoute,
    parent: ParentRef,
    why: Failure | None,
    places: Iterable[int],
    listeners: Sequence[BoundListener],
) -> ParentVerdict:
    if why:
        return ParentVerdict(route, parent, why)
    attached = tuple(places)
    modes = [tls.mode for number in attached if (tls := listeners[number].listener.tls)]
    return ParentVerdict(route, parent, None, attached, TlsMode.TERMINATE in modes)


def _refused(route: GatewayRoute, why: Failure, *, has_room: bool) -> GatewayRoute:
    """Return a route that answers its requests with an error; without room for its matches, all of its hosts."""
    rules = tuple(rule.refused(why.message) for rule in route.rules)
    if not has_room:
        best = min((rank for rule in rules for _, rank in rule.ranked), default=FIRST)
        rules = (RouteRule(problem=why.message, ranks=(best,)),)
    return replace(route, rules=rules, problem=why.message)


def _add(attached: list[Attached], new: Attached) -> None:
    """Attach a route once, also if several of its parents lead here."""
    if not attached or attached[-1].route is not new.route:
        attached.append(new)


def _places(
    route: GatewayRoute,
    parent: ParentRef,
    listeners: Sequence[BoundListener],
    namespaces: Mapping[str, Mapping[str, str]],
    claimed: _Claimed,
) -> tuple[Mapping[int, tuple[str, ...]], Failure | None]:
    """Return the listeners of a parent reference, with the common hostnames, or the reason that there are none."""
    owner = parent.reference
    named = {
        number: bound for number, bound in enumerate(listeners) if bound.owner == owner and _is_named(bound, parent)
    }
    if not named:
        what = f" {parent.section}" if parent.section else ""
        why = f"{parent.kind} {parent.key} has no listener{what}{f' on port {parent.port}' if parent.port else ''}"
        return {}, Failure("NoMatchingParent", f"{why}; correct parentRefs")
    allowed = {number: bound for number, bound in named.items() if _is_allowed(bound, route, namespaces)}
    if not allowed:
        return {}, Failure("NotAllowedByListeners", _not_allowed(route, parent, named.values()))
    if route.kind not in _BY_NAME:
        return dict.fromkeys(allowed, ("",)), None
    common = {number: intersections(bound.listener.hostname, route.hostnames) for number, bound in allowed.items()}
    fitting = {number: names for number, names in common.items() if names}
    if not fitting:
        why = f"no listener of {parent.kind} {parent.key} has one of the hostnames {', '.join(route.hostnames or ())}"
        unmatched = Failure("NoMatchingListenerHostname", f"{why}; correct one of both")
        return {}, unmatched if route.hostnames else invalid(route)
    other = RouteKind.GRPC if route.kind is RouteKind.HTTP else RouteKind.HTTP
    free = {number: names for number, names in fitting.items() if not _is_claimed(route, names, claimed[number, other])}
    if not free:
        why = f"an older {other} is attached for the same hostname; give one of both another hostname"
        return {}, Failure("RouteConflict", why)
    return free, None


def _is_named(bound: BoundListener, parent: ParentRef) -> bool:
    return parent.section in {"", bound.listener.name} and parent.port in {0, bound.listener.port}


def _is_allowed(bound: BoundListener, route: GatewayRoute, namespaces: Mapping[str, Mapping[str, str]]) -> bool:
    other = route.meta.key.namespace
    return route.kind in bound.kinds and bound.listener.allowed.admits(
        bound.owner.key.namespace, other, namespaces.get(other)
    )


def _not_allowed(route: GatewayRoute, parent: ParentRef, named: Collection[BoundListener]) -> str:
    """Return why none of these listeners takes a route: their protocol, or the kinds or namespaces that they allow."""
    which, kind = f"{parent.kind} {parent.key}", route.kind
    if any(kind in bound.kinds for bound in named):
        return (
            f"no listener of {which} allows {kind}s of namespace {route.meta.key.namespace}; look at its allowedRoutes"
        )
    if any(kind in KINDS.get(bound.listener.protocol, ()) for bound in named):
        return f"no listener of {which} allows {kind}s; look at the kinds of its allowedRoutes"
    protocols = any_of(sorted({clipped(bound.listener.protocol) for bound in named}))
    return f"{kind}s don't attach to listeners of protocol {protocols}, as {which} has; correct parentRefs"


def _is_claimed(route: GatewayRoute, names: Iterable[str], claimed: Iterable[str]) -> bool:
    """Return whether an older route of the other kind of HTTP is attached to one of the names."""
    if route.kind not in _EXCLUSIVE:
        return False
    return any(intersection(name, theirs) is not None for theirs in claimed for name in names)


def _too_much(route: GatewayRoute, places: Mapping[int, Sequence[str]], capacity: Capacity) -> Failure | None:
    """Return why a Gateway has no room for a route at these hostnames of its listeners."""
    matches = _matches(route)
    wanted = sum(capacity.wanted(number, names, matches) for number, names in places.items())
    if wanted <= capacity.remaining:
        return None
    why = f"its matches come to {wanted} with all hostnames, large expressions and header changes, and the Gateway has"
    return Failure(UNSUPPORTED, f"{why} room for {capacity.remaining} more; use fewer of them, or another Gateway")


def _matches(route: GatewayRoute) -> int:
    """Return the number of entries of a route at one hostname."""
    rules = route.rules if route.kind in _BY_NAME else ()
    return sum(_entries(rule) for rule in rules)


def _entries(rule: RouteRule) -> int:
    """Count the matches of a rule: each has all header changes in the proxy, and CORS, which preflights have too."""
    filters = rule.filters
    rights = filters.cors.size // SIZE_OF_ONE if filters.cors else 0
    changes = (filters.request, filters.response, *(each for to in rule.backends for each in (to.request, to.response)))
    for_each = sum(change.size for change in changes) // SIZE_OF_ONE
    return sum(
        for_each + (match.entries + rights) * (2 if filters.cors and match.preflight else 1) for match in rule.matches
    )


def invalid(route: GatewayRoute) -> Failure | None:
    """Return why nothing of a route can be served: the problem of the route, or of each of its rules."""
    if route.problem:
        return Failure(UNSUPPORTED, route.problem)
    problems = [rule for rule in route.rules if rule.problem]
    if not problems or len(problems) < len(route.rules):
        return None
    reason = INCOMPATIBLE_FILTERS if problems[0].incompatible else UNSUPPORTED
    return Failure(reason, "; ".join(rule.problem for rule in problems))
