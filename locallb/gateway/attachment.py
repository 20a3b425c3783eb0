"""Attachment of routes to listeners, and the verdict of each parent on a route.

Not here: listeners themselves (`gateway.listeners`), backends of rules (`gateway.routes`), and how it
becomes a status (`gateway.statuses`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from locallb.gateway.listeners import (
    KINDS,
    MAX_ENTRIES,
    BoundListener,
    Capacity,
    covering,
    covers,
    intersections,
    is_general,
)
from locallb.model.gateway_objects import FIRST, GatewayRoute, ParentRef, RouteKind, RouteRule, TlsMode
from locallb.model.http_routes import SIZE_OF_ONE
from locallb.model.memory import AnyMemo, Memo
from locallb.model.reasons import INCOMPATIBLE_FILTERS, UNSUPPORTED, Failure
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


class _Fit(NamedTuple):
    """Where one parent reference of a route leads, whatever other routes there are."""

    parent: ParentRef
    verdict: ParentVerdict
    attached: Mapping[int, Attached]
    """By number of the listener."""


class _Candidate(NamedTuple):
    """What the attachment of a route depends on besides other routes."""

    route: GatewayRoute
    fits: tuple[_Fit, ...]
    entries: int
    """Of the proxy, at one hostname."""
    invalid: Failure | None


def attach(
    listeners: Sequence[BoundListener],
    routes: Iterable[GatewayRoute],
    namespaces: Mapping[str, Mapping[str, str]],
    memory: AnyMemo | None = None,
) -> Attachment:
    """Attach routes, the oldest first, to one Gateway's listeners; `memory` caches what concerns a route alone."""
    memory = memory or Memo()
    candidates: Memo[_Candidate] = memory.of("candidates", Memo)
    candidates.within(listeners, namespaces)
    in_order = sorted(routes, key=lambda route: (route.meta.age, route.kind))
    attached: dict[int, list[Attached]] = {}
    claimed: _Claimed = defaultdict(set)
    verdicts = []
    capacity = Capacity(MAX_ENTRIES)
    for number, bound in enumerate(listeners):
        capacity.open(number, bound.listener.hostname)
    for candidate in candidates.each(lambda route: _candidate(route, listeners, namespaces), in_order):
        route = candidate.route
        refused: GatewayRoute | None = None
        for fit in candidate.fits:
            reached, why = _unclaimed(route, fit, claimed)
            wanted = {number: capacity.wanted(number, one.names, candidate.entries) for number, one in reached.items()}
            exceeded = _too_much(sum(wanted.values()), capacity)
            if not why and (why := candidate.invalid or exceeded):
                refused = refused or memory.of(("refused", route.reference), _refused, route, why, not exceeded)
                reached = {number: Attached(refused, one.names, accepted=False) for number, one in reached.items()}
            is_whole = reached is fit.attached
            verdicts.append(fit.verdict if is_whole else _verdict(route, fit.parent, why, reached, listeners))
            entries = entries_of(refused) if why and refused else candidate.entries
            for number, one in reached.items():
                _add(attached.setdefault(number, []), one)
                claimed[number, route.kind].update(() if why else one.names)
                if not why or entries == candidate.entries:
                    capacity.attach(number, one.names, entries, wanted[number])
    return Attachment({number: tuple(of_listener) for number, of_listener in attached.items()}, tuple(verdicts))


def _candidate(
    route: GatewayRoute, listeners: Sequence[BoundListener], namespaces: Mapping[str, Mapping[str, str]]
) -> _Candidate:
    owners = {bound.owner for bound in listeners}
    fits = []
    for parent in route.parents:
        if parent.reference in owners:
            places, why = _places(route, parent, listeners, namespaces)
            verdict = _verdict(route, parent, why, places, listeners)
            fits.append(_Fit(parent, verdict, {number: Attached(route, names) for number, names in places.items()}))
    return _Candidate(route, tuple(fits), entries_of(route), invalid(route))


def _unclaimed(route: GatewayRoute, fit: _Fit, claimed: _Claimed) -> tuple[Mapping[int, Attached], Failure | None]:
    """Return the listeners where no older route of the other kind of HTTP has a common name, or why there is none."""
    if route.kind not in _EXCLUSIVE or not fit.attached:
        return fit.attached, fit.verdict.accepted
    other = RouteKind.GRPC if route.kind is RouteKind.HTTP else RouteKind.HTTP
    free = {number: one for number, one in fit.attached.items() if not _is_claimed(one.names, claimed[number, other])}
    if not free:
        why = f"an older {other} is attached for the same hostname; give one of both another hostname"
        return {}, Failure("RouteConflict", why)
    return fit.attached if len(free) == len(fit.attached) else free, None


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


def _refused(route: GatewayRoute, why: Failure, has_room: bool) -> GatewayRoute:  # noqa: FBT001 - for a memory
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
    return fitting, None


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


def _is_claimed(names: Iterable[str], claimed: AbstractSet[str]) -> bool:
    """Return whether one of the names has common ones with a claimed name."""
    return bool(claimed) and any(
        not claimed.isdisjoint(covering(name)) or (is_general(name) and any(covers(name, theirs) for theirs in claimed))
        for name in names
    )


def _too_much(wanted: int, capacity: Capacity) -> Failure | None:
    """Return why a Gateway has no room for so many entries of a route at all of its hostnames."""
    if wanted <= capacity.remaining:
        return None
    why = f"its matches come to {wanted} with all hostnames, large expressions and header changes, and the Gateway has"
    return Failure(UNSUPPORTED, f"{why} room for {capacity.remaining} more; use fewer of them, or another Gateway")


def entries_of(route: GatewayRoute) -> int:
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
