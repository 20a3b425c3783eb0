"""HTTP routes: the conditions on a request, the action for it, and options: headers, mirrors, retries, sessions, CORS.

Each value is validated on creation and raises ValueError with a sentence. Times are milliseconds unless noted. Not
here: the order of routes, and hosts (`http_serving`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import StrEnum
from functools import cached_property

from msgspec import Struct
from msgspec.structs import replace

from locallb.model import http_checks
from locallb.model.faults import Fault
from locallb.model.http_checks import checked, groups, size_of
from locallb.model.identities import IPNetwork, UpstreamName
from locallb.model.texts import shown
from locallb.patterns import pattern

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
            http_checks.changed_header(name)
            http_checks.header_value(value)
        for name in self.remove:
            http_checks.changed_header(name)

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
    service: str = ""
    """As a target has it."""

    def __post_init__(self) -> None:
        http_checks.within(self.per_million, 0, _PER_MILLION, "share")


class RetryRule(Struct, frozen=True):
    """Retries: of answers with one of `codes`, and of requests that didn't reach a backend."""

    codes: tuple[int, ...] = ()
    attempts: int = 1
    backoff: int = 0
    """Milliseconds at least before the first of them; 0: the proxy's own."""

    def __post_init__(self) -> None:
        for code in self.codes:
            http_checks.within(code, 400, 599, "status")
        http_checks.within(self.attempts, 0, 100, "attempts")
        http_checks.within(self.backoff, 0, MAX_MILLISECONDS, "backoff")


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
        http_checks.header_name(self.name)
        http_checks.within(self.lifetime, 0, 400 * 24 * 3600 * 1000, "lifetime")
        _ = self.path and http_checks.path(self.path)


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
            http_checks.compared(text)
        http_checks.within(self.max_age, 0, 2**31 - 1, "max age")

    @property
    def size(self) -> int:
        """Return what it takes of a proxy's memory for each match, in instructions of expressions.

        An origin with `*` becomes an expression, of about an instruction for each letter.
        """
        expressions = sum(len(origin) for origin in self.origins if "*" in origin and origin != "*")
        texts = (*self.origins, *self.methods, *self.headers, *self.exposed)
        return expressions + sum(map(len, texts)) // _BYTES_OF_ONE


MAX_WEIGHT = 1_000_000
SIZE_OF_ONE = 100
"""Instructions of expressions that take as much of a proxy's memory as a match without any."""
OPTIONS = "OPTIONS"
"""The method of preflights."""
_NUMBER = pattern(r"\\([0-9])")
_STRAY = pattern(r"\\(?![0-9])")


class PathKind(StrEnum):
    """Comparison of a path. Paths are compared as sent, with dot segments resolved: %2F and // stay unchanged."""

    EXACT = "Exact"
    PREFIX = "Prefix"
    """By elements: /a takes /a, /a/ and /a/b, but not /ab."""
    REGEX = "RegularExpression"
    """RE2, the whole path."""


class PathMatch(Struct, frozen=True):
    """The path without the query. A prefix may end with a slash: that is the same prefix."""

    kind: PathKind
    value: str

    def __post_init__(self) -> None:
        (checked if self.kind is PathKind.REGEX else http_checks.path)(self.value)


_ANY_PART = "[^/]+"


def _part(text: str, *, regex: bool) -> str:
    if not text:
        return _ANY_PART
    return f"(?:{text})" if regex else re.escape(text)


class GrpcMethod(Struct, frozen=True):
    """The path of a gRPC call; an empty part takes any."""

    service: str = ""
    method: str = ""
    regex: bool = False

    @property
    def path(self) -> str:
        """Return the only path that it takes; empty where it takes several."""
        return f"/{self.service}/{self.method}" if self.service and self.method and not self.regex else ""

    @property
    def expression(self) -> str:
        """Return the expression (RE2) of the paths that it takes; empty where it takes every one."""
        parts = [_part(part, regex=self.regex) for part in (self.service, self.method)]
        return f"/{'/'.join(parts)}" if self.service or self.method else ""

    def __post_init__(self) -> None:
        for part in (self.service, self.method):
            if part:
                _ = checked(part) if self.regex else http_checks.path(f"/{part}")


class ValueMatch(Struct, frozen=True):
    """A header, without regard to the case of its name, or a parameter of the query, with a value."""

    name: str
    value: str
    regex: bool = False
    """RE2, the whole value."""

    def __post_init__(self) -> None:
        http_checks.header_name(self.name)
        (checked if self.regex else http_checks.compared)(self.value)


class Match(Struct, frozen=True, dict=True):
    """All of these must hold; the empty one takes every request."""

    path: PathMatch | GrpcMethod | None = None
    headers: tuple[ValueMatch, ...] = ()
    query: tuple[ValueMatch, ...] = ()
    method: str = ""

    def __post_init__(self) -> None:
        _ = self.method and http_checks.header_name(self.method)
        _ = self.entries  # noted as it is read: a plan never measures

    @cached_property
    def entries(self) -> int:
        """Return as how many it counts where matches are bounded: more with expressions that become large."""
        return 1 + sum(map(size_of, self._expressions())) // SIZE_OF_ONE

    @property
    def preflight(self) -> Match | None:
        """Return the match for preflights of its requests, without headers; None if it matches them itself."""
        return replace(self, method=OPTIONS) if self.method not in {"", OPTIONS} else None

    def _expressions(self) -> Iterator[str]:
        path = self.path
        yield from (condition.value for condition in (*self.headers, *self.query) if condition.regex)
        if isinstance(path, GrpcMethod):
            yield from (part for part in (path.service, path.method) if part and path.regex)
        elif path and path.kind is PathKind.REGEX:
            yield path.value


class Target(Struct, frozen=True):
    """A share of the requests: to an upstream by its name, or to none (`""`), which answers 500."""

    upstream: UpstreamName
    weight: int = 1
    request: HeaderChanges = NO_CHANGES
    response: HeaderChanges = NO_CHANGES
    service: str = ""
    """The Service and its port, for people: `shop/api:8080`."""
    problem: str = ""
    """A sentence why there is no upstream."""

    def __post_init__(self) -> None:
        http_checks.within(self.weight, 0, MAX_WEIGHT, "weight")


class PathRewrite(Struct, frozen=True):
    """Another path: the whole one, or what the route's prefix matched."""

    value: str
    prefix: bool = False
    """Only in a route that matches by prefix. `""` and `/` take the prefix away."""
    groups: bool = False
    """Only in a route with a regular expression: `\\1` is the text of its first group, `\\0` all of it."""

    def __post_init__(self) -> None:
        _ = (self.prefix and not self.value) or http_checks.path(self.value)
        if self.groups and _STRAY.search(self.value):
            raise ValueError(f"{shown(self.value)} has a backslash that names no group")


class Forward(Struct, frozen=True):
    """The request goes to one of `targets`, by weight; to none of them with a weight: 500."""

    targets: tuple[Target, ...]
    hostname: str = ""
    """The host that backends are asked for; empty: the client's."""
    path: PathRewrite | None = None
    mirrors: tuple[Mirror, ...] = ()
    timeout: int = 0
    """Milliseconds until the whole answer must be there, 504 otherwise; 0: no limit."""
    attempt_timeout: int = 0
    """The same for one attempt (backendRequest)."""
    retry: RetryRule | None = None
    session: SessionAffinity | None = None
    idle: int = 0
    """Milliseconds in which nothing comes or goes until the request is given up (504); 0: no limit."""

    def __post_init__(self) -> None:
        _ = self.hostname and http_checks.hostname(self.hostname, wildcard=False)
        http_checks.within(self.idle, 0, MAX_MILLISECONDS, "timeout")
        http_checks.within(self.timeout, 0, MAX_MILLISECONDS, "timeout")
        http_checks.within(self.attempt_timeout, 0, MAX_MILLISECONDS, "timeout")
        if sum(target.weight for target in self.targets) > 2**32 - 1:
            raise ValueError("the weights of a route are more than 4294967295 together")


class Redirect(Struct, frozen=True):
    """A redirect of the client; empty parts stay as requested."""

    code: int = 302
    scheme: str = ""
    hostname: str = ""
    port: int = 0
    """0: with a scheme the one that goes without saying, otherwise the listener's."""
    path: PathRewrite | None = None

    def __post_init__(self) -> None:
        if self.code not in {301, 302, 303, 307, 308}:
            raise ValueError(f"{self.code} isn't the status of a redirect: use 301, 302, 303, 307 or 308")
        if self.scheme not in {"", "http", "https"}:
            raise ValueError("the scheme of a redirect is http or https")
        _ = self.hostname and http_checks.hostname(self.hostname, wildcard=False)
        http_checks.within(self.port, 0, 65535, "port")


class DirectResponse(Struct, frozen=True):
    """An answer that the proxy gives itself, without a backend."""

    status: int
    body: str = ""

    def __post_init__(self) -> None:
        http_checks.within(self.status, 200, 599, "status")
        http_checks.within(len(self.body), 0, http_checks.MAX_TEXT, "length of an answer")


class Origin(Struct, frozen=True):
    """The object, and the part of it, that a route is made from, for people."""

    kind: str
    namespace: str
    name: str
    part: str = ""
    """`rule 2`, or of an Ingress a path."""
    problem: str = ""
    """The reason that the part isn't served as it is written."""

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}" + (f", {self.part}" if self.part else "")


class HttpRoute(Struct, frozen=True):
    """One match and its action. Header changes apply to every answer."""

    match: Match
    action: Forward | Redirect | DirectResponse
    request: HeaderChanges = NO_CHANGES
    response: HeaderChanges = NO_CHANGES
    cors: Cors | None = None
    sources: tuple[IPNetwork, ...] = ()
    """Client networks, by the address of the connection; requests from others are answered 403. None: all."""
    fault: Fault | None = None
    """The fault of matched requests, unless the whole listener has one."""
    origin: Origin | None = None
    """None where no object says it."""

    def __post_init__(self) -> None:
        action, path = self.action, self.match.path
        rewritten = action.path if isinstance(action, Forward | Redirect) else None
        by_prefix = isinstance(path, PathMatch) and path.kind is PathKind.PREFIX
        if rewritten and rewritten.prefix and not by_prefix:
            raise ValueError("only a route that matches by prefix can replace that")
        if rewritten and rewritten.groups:
            _check_groups(path, rewritten.value)

    @property
    def upstreams(self) -> tuple[UpstreamName, ...]:
        """Return every upstream to which it refers, also for copies of requests; none where it answers itself."""
        if not isinstance(self.action, Forward):
            return ()
        names = [target.upstream for target in self.action.targets]
        names += [mirror.upstream for mirror in self.action.mirrors]
        return tuple(dict.fromkeys(filter(None, names)))


def _check_groups(path: PathMatch | GrpcMethod | None, value: str) -> None:
    if not isinstance(path, PathMatch) or path.kind is not PathKind.REGEX:
        raise ValueError("only a route that matches by an expression has groups")
    count = groups(path.value)
    if any(int(number) > count for number in _NUMBER.findall(value)):
        raise ValueError(f"{shown(value)} names a group that the path doesn't have: it has {count}")
