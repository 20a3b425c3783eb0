"""A request as its client sends it and as a proxy compares it: its path, its conditions, and where it is led. Pure.

A proxy resolves dot segments of a path and decodes what needs no escape (`/%61/../b` is `/b`); where routes may have
`sources`, `//` and `%2F` count as `/` as well. `x-forwarded-proto` is what the proxy says itself. Of a header that is
sent several times one value must match; of a parameter the first one counts, as it is written.

Not here: which route of which proxy takes it (`planning.explanation`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from ipaddress import ip_address
from urllib.parse import quote, urlsplit

from msgspec import Struct

from locallb.model import http_checks
from locallb.model.http_checks import whole
from locallb.model.http_routes import (
    OPTIONS,
    GrpcMethod,
    Match,
    PathKind,
    PathMatch,
    PathRewrite,
    Redirect,
    ValueMatch,
)
from locallb.model.identities import IPAddress, in_place
from locallb.model.texts import clipped, shown
from locallb.patterns import pattern

USUAL_PORTS = {"http": 80, "https": 443}
_ORIGIN, _REQUESTED_METHOD = "origin", "access-control-request-method"
_UNSENDABLE = pattern(r"[^\x21-\x7e]")
_UNESCAPED = pattern(r"%([0-9A-Fa-f]{2})")
_NEEDLESS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
"""Characters that need no escape."""
_ESCAPED_SLASH = pattern(r"(?i:%2f|%5c)")
_FORBIDDEN = pattern(r"%00")
_MUST_BE_ESCAPED = pattern(r'["<>^`{|}]')
_PORT = pattern(r":[0-9]*\Z")
_SCHEME = pattern(r"[A-Za-z][A-Za-z0-9+.-]*://")
_GROUP = pattern(r"\\([0-9])")


class HttpRequest(Struct, frozen=True):
    """A request by a URL."""

    scheme: str
    host: str
    """Of the URL: a name in lower case, or an address without brackets."""
    port: int
    target: str = "/"
    """The path and the query, as they are sent."""
    method: str = "GET"
    headers: tuple[tuple[str, str], ...] = ()
    """In the order in which they are sent; a `host` stands for the one of the URL."""

    @classmethod
    def parse(cls, url: str, method: str = "GET", headers: Iterable[str] = ()) -> HttpRequest:
        """Read a URL, which may lack `http://`, and headers such as `x-user: a`. Raises ValueError with a sentence."""
        try:
            parts = urlsplit(url if _SCHEME.match(url) else f"http://{url}")
            port = parts.port
            target = _sendable(parts.path or "/") + (f"?{_sendable(parts.query)}" if parts.query else "")
        except ValueError:
            raise ValueError(f"{shown(url)} isn't a URL such as http://shop.test:8080/cart") from None
        if parts.scheme not in USUAL_PORTS:
            raise ValueError(f"{shown(url)} isn't a URL of http or https: write http://shop.test/ or the like")
        if not parts.hostname or parts.username is not None or port == 0:
            raise ValueError(f"{shown(url)} needs a host, with a port from 1 to 65535 or none, and no user")
        read = tuple(map(_header, headers))
        if sum(name == "host" for name, _ in read) > 1:
            raise ValueError("a request has one Host header")
        if ("host", "") in read:
            raise ValueError("the Host header is empty: write the host that is asked for")
        return cls(
            parts.scheme,
            _host(parts.hostname),
            port or USUAL_PORTS[parts.scheme],
            target,
            _method(method),
            read,
        )

    @property
    def address(self) -> IPAddress | None:
        """The address that the URL names; None for a name."""
        try:
            return ip_address(self.host)
        except ValueError:
            return None

    @property
    def place(self) -> str:
        """The URL's host and port, as a client without a header of its own names the host."""
        host = in_place(self.address) if self.address else self.host
        return host if self.port == USUAL_PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def url(self) -> str:
        return f"{self.scheme}://{self.place}{self.target}"

    @property
    def authority(self) -> str:
        """The host that is asked for, perhaps with a port."""
        return next((value for name, value in self.headers if name == "host"), self.place)

    @property
    def requested_host(self) -> str:
        """The host that is asked for, as tables of routes have it: in lower case, without a port and a last dot."""
        return _PORT.sub("", self.authority.lower()).rstrip(".")

    def __str__(self) -> str:
        named = [f" ({name}: {value})" for name, value in self.headers]
        return f"{self.method} {self.url}{''.join(named)}"


def _sendable(text: str) -> str:
    """Escape what no client sends as it is, also bytes of a command line that are no UTF-8. Raises ValueError."""
    return _UNSENDABLE.sub(lambda match: quote(match[0], errors="surrogateescape"), text)


def _host(text: str) -> str:
    """Return the host of a URL in one form. Raises ValueError."""
    try:
        return str(ip_address(text))
    except ValueError:
        name = text.rstrip(".")
    if name.startswith("*"):
        raise ValueError(f"{shown(text)} is no single host: name one that it covers")
    return http_checks.host(name)


def _method(text: str) -> str:
    """Return a method. Raises ValueError."""
    try:
        return http_checks.header_name(text)  # the same characters
    except ValueError:
        raise ValueError(f"{shown(text)} isn't a method such as GET or POST") from None


def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon:
        raise ValueError(f"{shown(text)} isn't a header: write its name, a colon and its value")
    return http_checks.header_name(name.strip()).lower(), http_checks.compared(value.strip())


class ComparedRequest(Struct, frozen=True):
    """A request as a proxy compares routes with it."""

    method: str
    path: str
    suffix: str
    """The question mark and the query, or nothing."""
    parameters: Mapping[str, str]
    headers: Mapping[str, tuple[str, ...]]
    """The values by name, in lower case."""

    @classmethod
    def of(cls, request: HttpRequest, *, merges_slashes: bool = False) -> ComparedRequest | None:
        """Return it; None where its path is refused."""
        path, mark, query = request.target.partition("?")
        headers: dict[str, tuple[str, ...]] = {}
        for name, value in request.headers:
            headers[name] = (*headers.get(name, ()), value)
        headers |= {"host": (request.authority,), "x-forwarded-proto": (request.scheme,)}
        parameters: dict[str, str] = {}
        for part in query.split("&") if query else ():
            name, _, value = part.partition("=")
            parameters.setdefault(name, value)
        normal = normal_path(path, merges_slashes=merges_slashes)
        return cls(request.method, normal, f"{mark}{query}", parameters, headers) if normal else None

    @property
    def is_preflight(self) -> bool:
        """Whether it asks for the rights of a script of another origin."""
        return self.method == OPTIONS and any(self.headers.get(_ORIGIN, ())) and any(self._requested_methods)

    def is_preflight_for(self, method: str) -> bool:
        """Return whether it has what a preflight for requests of this method has."""
        return _ORIGIN in self.headers and method in self._requested_methods

    @property
    def _requested_methods(self) -> tuple[str, ...]:
        return self.headers.get(_REQUESTED_METHOD, ())


def normal_path(path: str, *, merges_slashes: bool = False) -> str:
    """Return a path as it is compared and forwarded; empty where it is refused."""
    if merges_slashes:
        path = _ESCAPED_SLASH.sub(lambda match: "/" if match[0].lower() == "%2f" else "\\", path)
    if _FORBIDDEN.search(path):
        return ""
    path = _UNESCAPED.sub(_decoded, path).replace("\\", "/")
    path = _MUST_BE_ESCAPED.sub(lambda match: f"%{ord(match[0]):02X}", path)
    segments: list[str] = []
    *directories, last = path.split("/")[1:]
    for segment in directories:
        _go(segments, segment)
    if last in {".", ".."}:
        _go(segments, last)
        last = ""
    normal = "/".join(["", *segments, last])
    return re.sub("//+", "/", normal) if merges_slashes else normal


def _decoded(match: re.Match[str]) -> str:
    character = chr(int(match[1], 16))
    return character if character in _NEEDLESS else match[0]


def _go(segments: list[str], segment: str) -> None:
    if segment == "..":
        del segments[-1:]
    elif segment != ".":
        segments.append(segment)


class Unmet(Struct, frozen=True):
    """The first condition of a match that a request doesn't meet."""

    sentence: str
    """Part of one: `the path isn't /a`."""
    met: int
    """How many conditions precede it."""


def unmet(match: Match, request: ComparedRequest) -> Unmet | None:
    """Return what a request lacks for a match; None if it is taken."""
    for number, sentence in enumerate(_conditions(match, request)):
        if sentence:
            return Unmet(sentence, number)
    return None


def _conditions(match: Match, request: ComparedRequest) -> Iterator[str]:
    """Yield an empty text for each condition that a request meets, else what is wrong."""
    yield "" if _takes_path(match.path, request.path) else f"the path {_path_condition(match.path)}"
    if match.method:
        yield "" if request.method == match.method else f"the method isn't {match.method}"
    for header in match.headers:
        yield _value_condition("header", header, request.headers.get(header.name.lower(), ()))
    for parameter in match.query:
        value = request.parameters.get(parameter.name)
        yield _value_condition("parameter", parameter, () if value is None else (value,))


def _takes_path(path: PathMatch | GrpcMethod | None, sent: str) -> bool:
    match path:
        case None:
            return True
        case GrpcMethod(path=exact, expression=expression):
            return sent == exact if exact else not expression or _matches(expression, sent)
        case PathMatch(kind=PathKind.EXACT, value=value):
            return sent == value
        case PathMatch(kind=PathKind.REGEX, value=value):
            return _matches(value, sent)
        case PathMatch(value=value):
            elements = value.rstrip("/")
            return sent == elements or sent.startswith(f"{elements}/")


def _path_condition(path: PathMatch | GrpcMethod | None) -> str:
    match path:
        case GrpcMethod(service, method):
            return f"isn't /{clipped(service) or '*'}/{clipped(method) or '*'}"
        case PathMatch(kind=PathKind.REGEX, value=value):
            return f"doesn't match {clipped(value)}"
        case PathMatch(kind=PathKind.PREFIX, value=value):
            return f"isn't below {clipped(value)}"
        case _:
            return f"isn't {clipped(path.value) if path else '/'}"


def _value_condition(kind: str, match: ValueMatch, values: Sequence[str]) -> str:
    if not values:
        return f"there is no {kind} {match.name}"
    if any(_matches(match.value, value) if match.regex else value == match.value for value in values):
        return ""
    verb = "doesn't match" if match.regex else "isn't"
    return f"the {kind} {match.name} {verb} {clipped(match.value)}"


def _matches(expression: str, text: str) -> bool:
    return whole(expression)(text.encode()) is not None


def rewritten(rewrite: PathRewrite | None, matched: PathMatch | GrpcMethod | None, path: str) -> str:
    """Return the path that a rewrite makes of one that a route matched."""
    if rewrite is None:
        return path
    value = matched.value if isinstance(matched, PathMatch) else ""
    if rewrite.groups:
        found = whole(value)(path.encode())
        return _GROUP.sub(lambda group: _group(found, int(group[1])), rewrite.value) if found else path
    if not rewrite.prefix:
        return rewrite.value
    rest, prefix = rewrite.value.rstrip("/"), value.rstrip("/")
    if rest or not prefix:
        return f"{rest if prefix else f'{rest}/'}{path[len(prefix or '/') :]}"
    return f"/{path[len(prefix) :].lstrip('/')}"


def _group(found: object, number: int) -> str:
    text: bytes | None = found.group(number)  # type: ignore[attr-defined]
    return (text or b"").decode()


def location(
    redirect: Redirect, matched: PathMatch | GrpcMethod | None, request: HttpRequest, compared: ComparedRequest
) -> str:
    """Return where a client is led; the query stays."""
    scheme = redirect.scheme or request.scheme
    port = redirect.port or (USUAL_PORTS[scheme] if redirect.scheme else request.port)
    host = redirect.hostname or _PORT.sub("", request.authority)
    place = host if port == USUAL_PORTS[scheme] else f"{host}:{port}"
    return f"{scheme}://{place}{rewritten(redirect.path, matched, compared.path)}{compared.suffix}"
