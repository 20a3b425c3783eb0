"""The rules of routes, and the order of their matches: more specific ones first, then those of older routes.

A rule is complete if it names no other object, and by reference if it does. A value that can't be served is the rule's
`problem`, so that the other rules are served. The proxy takes the first match that fits, so sorting is all that the
API's rules of precedence need; a refused match that closes more than is written precedes matches of its own namespace
only (`ordered`).

Not here: hostnames, which decide before (`gateway.listeners`), parsing (`gateway.parsing`), and the backends of
references (`gateway.routes`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from locallb.model.http_policies import NO_CHANGES, Cors, HeaderChanges, RetryRule, SessionAffinity
from locallb.model.http_routes import GrpcMethod, Match, PathKind, PathMatch, PathRewrite, Redirect

_Item = TypeVar("_Item")
Rank: TypeAlias = tuple[int, int, int, bool, int, int]
FIRST: Rank = (-1, 0, 0, False, 0, 0)
"""Before every match."""
PATH_RANKS = {PathKind.EXACT: 0, PathKind.REGEX: 1, PathKind.PREFIX: 2}
"""Exact paths, then regular expressions, of which the API leaves it open, then prefixes."""
_WITHOUT_PATH = 3
_LAST: Rank = (_WITHOUT_PATH, 0, 0, True, 0, 0)
_ANY = "any"
_WHOLE = (None, PathMatch(PathKind.PREFIX, "/"))


class PlacedMatch(NamedTuple, Generic[_Item]):
    """A match among those of all namespaces."""

    namespace: str
    order: tuple[Any, ...]
    """Its place among matches of its own namespace."""
    among_others: tuple[Any, ...]
    """Its place among those of others: later than `order` where a refused match closes more than is written."""
    method: str
    item: _Item


def ordered(matches: Iterable[PlacedMatch[_Item]]) -> Iterator[tuple[_Item, bool]]:
    """Return matches in the order in which requests are compared, each with whether its requests are refused.

    They are refused where a refused match of the same namespace precedes them, but comes after those of others.
    """
    listed = sorted(matches, key=lambda match: match.order)
    if len({match.namespace for match in listed}) < 2:  # noqa: PLR2004 - only others can be harmed
        yield from ((match.item, False) for match in listed)
        return
    closed: dict[tuple[str, str], tuple[Any, ...]] = {}
    found = []
    for match in listed:
        kinds = (match.method, "") if match.method else (_ANY,)
        is_closed = any(match.among_others < closed.get((match.namespace, kind), ()) for kind in kinds)
        found.append((match.among_others, match.item, is_closed))
        if match.among_others > match.order:
            for kind in (match.method, _ANY):
                key = (match.namespace, kind)
                closed[key] = max(closed.get(key, ()), match.among_others)
    yield from ((item, is_closed) for _, item, is_closed in sorted(found, key=lambda each: each[0]))


def rank(match: Match) -> Rank:
    """Return what matches of any routes are sorted by.

    Kind of path; the longest; has a method; most headers; most parameters of the query.
    """
    kind, first, second = path_rank(match.path)
    return kind, first, second, not match.method, -len(match.headers), -len(match.query)


def rank_among_others(match: Match, own: Rank) -> Rank:
    """Return the rank of a match among matches of other namespaces; `own` is the rank as written.

    A refused match has the rank of the paths it closes, and comes last if its path isn't understood at all.
    """
    compared = rank(match)
    if own >= compared:
        return own
    return _LAST if match.path in _WHOLE and own[:3] != compared[:3] else compared


def path_rank(path: PathMatch | GrpcMethod | None) -> tuple[int, int, int]:
    """Return the kind of a path and how long it is; of gRPC the service counts, then the method."""
    match path:
        case PathMatch(kind, value):
            return written_path_rank(kind, value)
        case GrpcMethod(service, method, regex):
            return int(regex), -len(service), -len(method)
        case None:
            return _WITHOUT_PATH, 0, 0


def written_path_rank(kind: PathKind, value: str) -> tuple[int, int, int]:
    """Return the rank of a path of this kind, whether it can be compared or not."""
    return (PATH_RANKS[kind], 0 if kind is PathKind.EXACT else -len(value.rstrip("/")), 0)


class BackendRef(Struct, frozen=True):
    """A reference to a backend, its namespace filled in."""

    group: str
    kind: str
    namespace: str
    name: str
    port: int = 0
    weight: int = 1
    request: HeaderChanges = NO_CHANGES
    response: HeaderChanges = NO_CHANGES

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" + (f":{self.port}" if self.port else "")


class MirrorRef(Struct, frozen=True):
    """A backend that gets copies of a share of the requests."""

    backend: BackendRef
    per_million: int = 1_000_000


class Filters(Struct, frozen=True):
    """Changes of requests and answers, for all clients."""

    request: HeaderChanges = NO_CHANGES
    response: HeaderChanges = NO_CHANGES
    redirect: Redirect | None = None
    hostname: str = ""
    path: PathRewrite | None = None
    mirrors: tuple[MirrorRef, ...] = ()
    cors: Cors | None = None

    @property
    def rewrites(self) -> bool:
        """Return whether backends are asked for something else than clients ask for."""
        return bool(self.hostname or self.path)


class RouteRule(Struct, frozen=True):
    """A rule. One without a backend answers by itself: with a redirect, or 500. Times are milliseconds."""

    matches: tuple[Match, ...] = (Match(),)
    filters: Filters = Filters()
    backends: tuple[BackendRef, ...] = ()
    name: str = ""
    timeout: int = 0
    """0 for none."""
    attempt_timeout: int = 0
    retry: RetryRule | None = None
    session: SessionAffinity | None = None
    problem: str = ""
    """The reason that it isn't served: half a sentence. Its requests are answered with an error, by no other rule."""
    incompatible: bool = False
    """Its filters contradict each other."""
    ranks: tuple[Rank, ...] = ()
    """The precedence of each match, where one is broader than the rule writes it; empty: their own."""

    @property
    def ranked(self) -> Iterable[tuple[Match, Rank]]:
        """Return the matches, each with its precedence."""
        return zip(self.matches, self.ranks or map(rank, self.matches), strict=True)

    def refused(self, problem: str) -> RouteRule:
        """Return this rule as an unserved one, for its own problem or this one."""
        return self if self.problem else replace(self, problem=problem)


ANYTHING = RouteRule(ranks=(FIRST,))
"""A rule that takes every request before all others: for rules that aren't understood at all."""
