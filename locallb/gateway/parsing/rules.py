"""Parses a rule of a route. A rule that can't be served keeps its problem; its neighbours are served.

The bounds of the API's CRDs are checked again, because manifests never met an API server. Not here: filters
(`filters`), the rest of a route (`routes`), which texts are safe (`model.http.checks`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import StrEnum

from msgspec.structs import replace

from locallb.gateway.parsing.fields import duration, items, raw_items
from locallb.gateway.parsing.filters import OF_BACKENDS, OF_GRPC, OF_HTTP, made, parse_filters
from locallb.gateway.parsing.references import backend_ref
from locallb.model.fields import FieldError, Fields
from locallb.model.formatting import shown
from locallb.model.gateway.rules import BackendRef, Rule
from locallb.model.http.policies import Retry, Session, SessionKind
from locallb.model.http.routes import GrpcMethod, Match, PathKind, PathMatch, ValueMatch

_MOST_RULES = 16
_MOST_MATCHES = 128
"""Of all rules of a route together."""
_MOST = 16
_ODD_PATHS = ("//", "/./", "/../", "%2f", "%2F", "#")


class _PathType(StrEnum):
    EXACT = "Exact"
    PREFIX = "PathPrefix"
    REGEX = "RegularExpression"


class _Compared(StrEnum):
    EXACT = "Exact"
    REGEX = "RegularExpression"


class _Method(StrEnum):
    ANY = ""
    GET = "GET"
    HEAD = "HEAD"
    POST = "POST"
    PUT = "PUT"
    DELETE = "DELETE"
    CONNECT = "CONNECT"
    OPTIONS = "OPTIONS"
    TRACE = "TRACE"
    PATCH = "PATCH"


class _Lifetime(StrEnum):
    SESSION = "Session"
    PERMANENT = "Permanent"


def parse_rules(spec: Fields, namespace: str, *, is_grpc: bool = False) -> tuple[Rule, ...]:
    """Read spec.rules; absent, a route has one that matches everything. Raises FieldError for what are no rules."""
    entries = raw_items(spec, "rules", _MOST_RULES)
    rules = tuple(_rule(path, item, namespace, is_grpc=is_grpc) for path, item in entries)
    if (count := sum(len(rule.matches) for rule in rules)) > _MOST_MATCHES:
        raise FieldError(f"{spec.at('rules')} has {count} matches; {_MOST_MATCHES} are allowed, so split the route")
    return rules or (Rule(),)


def _rule(path: str, item: object, namespace: str, *, is_grpc: bool) -> Rule:
    try:
        rule = _served_rule(Fields.of(path, item), namespace, is_grpc=is_grpc)
    except FieldError as error:
        return Rule((), problem=str(error))
    redirects = rule.filters.redirect is not None
    if redirects and rule.filters.rewrites:
        return replace(rule, problem=f"{path} redirects and rewrites; keep one of both", incompatible=True)
    if redirects and rule.backends:
        return replace(rule, problem=f"{path} redirects and has backendRefs; keep one of both", incompatible=True)
    rewrite = rule.filters.redirect.path if rule.filters.redirect else rule.filters.path
    if rewrite and rewrite.prefix and not all(map(_is_by_prefix, rule.matches)):
        return replace(rule, problem=f"{path} replaces a prefix that it doesn't match; match by PathPrefix")
    return rule


def _is_by_prefix(match: Match) -> bool:
    return isinstance(match.path, PathMatch) and match.path.kind is PathKind.PREFIX


def _served_rule(fields: Fields, namespace: str, *, is_grpc: bool) -> Rule:
    timeouts = fields.inner("timeouts")
    whole, attempt = duration(timeouts, "request"), duration(timeouts, "backendRequest")
    if whole and attempt > whole:
        raise FieldError(f"{timeouts.at('backendRequest')} is longer than request; make it shorter")
    matches = [_grpc_match(item) if is_grpc else _match(item) for item in items(fields, "matches", 64)]
    return Rule(
        matches=tuple(matches) or (Match() if is_grpc else _match(Fields("", {})),),
        filters=parse_filters(fields, namespace, OF_GRPC if is_grpc else OF_HTTP),
        backends=parse_backends(fields, namespace),
        name=fields.text("name"),
        timeout=whole,
        attempt_timeout=attempt,
        retry=_retry(fields.inner("retry")) if fields.get("retry") is not None else None,
        session=_session(fields.inner("sessionPersistence")) if fields.get("sessionPersistence") is not None else None,
    )


def parse_backends(fields: Fields, namespace: str) -> tuple[BackendRef, ...]:
    """Read backendRefs, with what each does to headers. Raises FieldError."""
    return tuple(_backend(item, namespace) for item in items(fields, "backendRefs", _MOST))


def _backend(fields: Fields, namespace: str) -> BackendRef:
    filters = parse_filters(fields, namespace, OF_BACKENDS)
    return replace(backend_ref(fields, namespace), request=filters.request, response=filters.response)


def _match(fields: Fields) -> Match:
    query = _each_once((_compared(item) for item in items(fields, "queryParams", _MOST)), str)
    method = fields.choice("method", _Method.ANY).value
    return Match(_path(fields.inner("path")), _headers(fields), query, method)


def _path(fields: Fields) -> PathMatch:
    kind = fields.choice("type", _PathType.PREFIX)
    value, path = fields.text("value") or "/", fields.at("value")
    is_plain = kind is not _PathType.REGEX
    if is_plain and (any(sign in value for sign in _ODD_PATHS) or value.endswith(("/.", "/.."))):
        raise FieldError(f"{path} is {shown(value)}; give a path such as /cart, without . and .. in it")
    return made(fields, lambda: PathMatch(PathKind(kind.value.removeprefix("Path")), value))


def _headers(fields: Fields) -> tuple[ValueMatch, ...]:
    return _each_once((_compared(item) for item in items(fields, "headers", _MOST)), str.lower)


def _each_once(matches: Iterable[ValueMatch], of: Callable[[str], str]) -> tuple[ValueMatch, ...]:
    """Keep the first of each name, as the API specifies."""
    named: dict[str, ValueMatch] = {}
    for match in matches:
        named.setdefault(of(match.name), match)
    return tuple(named.values())


def _compared(fields: Fields) -> ValueMatch:
    regex = fields.choice("type", _Compared.EXACT) is _Compared.REGEX
    return made(fields, lambda: ValueMatch(fields.text("name"), fields.text("value"), regex))


def _grpc_match(fields: Fields) -> Match:
    inner = fields.inner("method")
    regex = inner.choice("type", _Compared.EXACT) is _Compared.REGEX
    service, method = inner.text("service"), inner.text("method")
    path = made(inner, lambda: GrpcMethod(service, method, regex)) if service or method else None
    return Match(path, _headers(fields))


def _retry(fields: Fields) -> Retry:
    codes = raw_items(fields, "codes", 200)
    for path, item in codes:
        if isinstance(item, bool) or not isinstance(item, int):
            raise FieldError(f"{path} is {shown(item)}; use a status from 400 to 599")
    statuses = tuple(sorted({item for _, item in codes if isinstance(item, int)}))
    attempts, backoff = fields.integer("attempts", 0, 100, 1), duration(fields, "backoff")
    return made(fields, lambda: Retry(statuses, attempts, backoff))


def _session(fields: Fields) -> Session:
    kind = fields.choice("type", SessionKind.COOKIE)
    inner = fields.inner(kind.value.lower())
    absolute, path = duration(fields, "absoluteTimeout"), inner.text("path")
    name = inner.text("name") or fields.text("sessionName") or "local-lb-session"
    is_permanent = inner.choice("lifetimeType", _Lifetime.SESSION) is _Lifetime.PERMANENT
    if is_permanent and not absolute:
        raise FieldError(f"{inner.at('lifetimeType')} is Permanent without absoluteTimeout; give one")
    return made(fields, lambda: Session(name, kind, absolute if is_permanent else 0, path))
