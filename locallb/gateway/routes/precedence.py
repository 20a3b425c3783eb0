"""The order of matches: the more specific one, then that of the older route, then the earlier one.

The proxy takes the first match that fits, so sorting is all that the API's rules of precedence need. Not here:
hostnames, which decide before (`gateway.hostnames`).
"""

from __future__ import annotations

from typing import TypeAlias

from locallb.model.http.routes import GrpcMethod, Match, PathKind, PathMatch

Rank: TypeAlias = tuple[int, int, int, bool, int, int]
_RANKS = {PathKind.EXACT: 0, PathKind.REGEX: 1, PathKind.PREFIX: 2}
"""Exact paths, then regular expressions, of which the API leaves it open, then prefixes."""
_WITHOUT_PATH = 3


def rank(match: Match) -> Rank:
    """Return what matches of any routes are sorted by.

    Kind of path; the longest; has a method; most headers; most parameters of the query.
    """
    kind, first, second = _path(match.path)
    return kind, first, second, not match.method, -len(match.headers), -len(match.query)


def _path(path: PathMatch | GrpcMethod | None) -> tuple[int, int, int]:
    """Return the kind of a path and how long it is; of gRPC the service counts, then the method."""
    match path:
        case PathMatch(PathKind.EXACT, _):
            return 0, 0, 0
        case PathMatch(kind, value):
            return _RANKS[kind], -len(value.rstrip("/")), 0
        case GrpcMethod(service, method, regex):
            return int(regex), -len(service), -len(method)
        case None:
            return _WITHOUT_PATH, 0, 0
