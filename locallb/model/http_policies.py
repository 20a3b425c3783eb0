"""Options of an HTTP route: header changes, mirrors, retries, session persistence and CORS.

Each value is validated on creation and raises ValueError with a sentence. Times are milliseconds unless noted.
"""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from locallb.model import http_checks as check
from locallb.model.identities import UpstreamName

MAX_MILLISECONDS = 7 * 24 * 3600 * 1000
_PER_MILLION = 1_000_000
MAX_SEPARATORS = 8
"""Hyphens and underscores of a header's name up to which its other spellings are removed without its own."""
_BYTES_OF_ONE = 10
"""Bytes of a value that take as much of a proxy's memory as an instruction of an expression."""


class HeaderChanges(Struct, frozen=True):
    """Set replaces, add appends to what is there, remove takes out."""

    set: tuple[tuple[str, str], ...] = ()
    add: tuple[tuple[str, str], ...] = ()
    remove: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name, value in (*self.set, *self.add):
            check.changed_header(name)
            check.header_value(value)
        for name in self.remove:
            check.changed_header(name)

    @property
    def names(self) -> frozenset[str]:
        """Return the headers that are changed."""
        return frozenset((*(name for name, _ in (*self.set, *self.add)), *self.remove))

    @property
    def size(self) -> int:
        """Return what it takes of a proxy's memory for each match, in instructions of expressions.

        Other spellings of a name are removed by expressions: at most one for each of its separators.
        """
        values = sum(len(value) for _, value in (*self.set, *self.add))
        names = (*(name for name, _ in (*self.set, *self.add)), *self.remove)
        return values // _BYTES_OF_ONE + sum(len(name) * (1 + min(_separators(name), MAX_SEPARATORS)) for name in names)


def _separators(name: str) -> int:
    return name.count("-") + name.count("_")


NO_CHANGES = HeaderChanges()


class Mirror(Struct, frozen=True):
    """A copy of a share of the requests; its answers are dropped."""

    upstream: UpstreamName
    per_million: int = _PER_MILLION

    def __post_init__(self) -> None:
        check.within(self.per_million, 0, _PER_MILLION, "share")


class RetryRule(Struct, frozen=True):
    """Retries: of answers with one of `codes`, and of requests that didn't reach a backend."""

    codes: tuple[int, ...] = ()
    attempts: int = 1
    backoff: int = 0
    """Milliseconds at least before the first of them; 0: the proxy's own."""

    def __post_init__(self) -> None:
        for code in self.codes:
            check.within(code, 400, 599, "status")
        check.within(self.attempts, 0, 100, "attempts")
        check.within(self.backoff, 0, MAX_MILLISECONDS, "backoff")


class SessionKind(StrEnum):
    """How a client identifies its backend."""

    COOKIE = "Cookie"
    HEADER = "Header"


class SessionAffinity(Struct, frozen=True):
    """Session affinity: a client's requests go to the backend of its first one, as long as that is healthy."""

    name: str
    kind: SessionKind = SessionKind.COOKIE
    lifetime: int = 0
    """Milliseconds that a cookie is kept; 0: as long as the browser runs."""
    path: str = ""

    def __post_init__(self) -> None:
        check.header_name(self.name)
        check.within(self.lifetime, 0, 400 * 24 * 3600 * 1000, "lifetime")
        _ = self.path and check.path(self.path)


class Cors(Struct, frozen=True):
    """Rights of scripts of other origins; preflights are answered here."""

    origins: tuple[str, ...]
    """`https://a.test:8443`, `https://*.a.test` or `*`."""
    methods: tuple[str, ...] = ()
    headers: tuple[str, ...] = ()
    """`*` is any, in both."""
    exposed: tuple[str, ...] = ()
    credentials: bool = False
    max_age: int = 5
    """Seconds."""

    def __post_init__(self) -> None:
        for text in (*self.origins, *self.methods, *self.headers, *self.exposed):
            check.compared(text)
        check.within(self.max_age, 0, 2**31 - 1, "max age")

    @property
    def size(self) -> int:
        """Return what it takes of a proxy's memory for each match, in instructions of expressions.

        An origin with `*` becomes an expression, of about an instruction for each letter.
        """
        expressions = sum(len(origin) for origin in self.origins if "*" in origin and origin != "*")
        texts = (*self.origins, *self.methods, *self.headers, *self.exposed)
        return expressions + sum(map(len, texts)) // _BYTES_OF_ONE
