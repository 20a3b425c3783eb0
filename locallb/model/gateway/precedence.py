"""The order of matches: the more specific one, then that of the older route, then the earlier one.

The proxy takes the first match that fits, so sorting is all that the API's rules of precedence need. Not here:
hostnames, which decide before (`gateway.hostnames`).
"""

from __future__ import annotations

from typing import TypeAlias

from locallb.model.http.routes import GrpcMethod, Match, PathKind, PathMatch

Rank: TypeAlias = tuple[int, int, int, bool, int, int]
FIRST: Rank = (-1, 0, 0, False, 0, 0)
"""Before every match."""
PATH_RANKS = {PathKind.EXACT: 0, PathKind.REGEX: 1, PathKind.PREFIX: 2}
"""Exact paths, then regular expressions, of which the API leaves it open, then prefixes."""
_WITHOUT_PATH = 3


def rank(match: Match) -> Rank:
    """Return what matches of any routes are sorted by.

    Kind of path; the longest; has a method; most headers; most parameters of the query.
    """
    kind, first, second = path_rank(match.path)
    return kind, first, second, not match.method, -len(match.headers), -len(match.query)


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
