"""One rule of a route: complete if it names no other object, and by reference if it does.

A value that can't be served is the rule's `problem`, so that the other rules are served. Not here: how rules are
parsed (`parsing.rules`), their order (`precedence`), and the backends of references (`backends`).
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct
from msgspec.structs import replace

from locallb.model.gateway.precedence import FIRST, Rank, rank
from locallb.model.http.policies import NO_CHANGES, Cors, HeaderChanges, Retry, Session
from locallb.model.http.routes import Match, PathRewrite, Redirect


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


class Rule(Struct, frozen=True):
    """A rule. One without a backend answers by itself: with a redirect, or 500. Times are milliseconds."""

    matches: tuple[Match, ...] = (Match(),)
    filters: Filters = Filters()
    backends: tuple[BackendRef, ...] = ()
    name: str = ""
    timeout: int = 0
    """0 for none."""
    attempt_timeout: int = 0
    retry: Retry | None = None
    session: Session | None = None
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

    def refused(self, problem: str) -> Rule:
        """Return this rule as an unserved one, for its own problem or this one."""
        return self if self.problem else replace(self, problem=problem)


ANYTHING = Rule(ranks=(FIRST,))
"""A rule that takes every request before all others: for rules that aren't understood at all."""
