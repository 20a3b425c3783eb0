"""Parses routes of any kind, with their rules, filters and matches.

A malformed route keeps its problem and is never an exception. A rule that can't be served keeps its problem and its
matches; its neighbours are served. A rule with an unsupported filter answers with an error, as the API specifies:
without the filter it would serve something else than was requested. An unservable match keeps everything that is
understood: other parts are left out or, of a path, cut to the known beginning. So the match is never narrower than
written, and its precedence is the written one: by it the requests of an unserved rule are found. The bounds of the
API's CRDs are checked again, because manifests never passed an API server.

Not here: which texts are safe (`model.http_checks`), and the bindings of a route (`gateway.attachment`).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from typing import NamedTuple, TypeVar

from msgspec.structs import replace

from locallb.gateway.parsing import (
    LARGEST_PORT,
    backend_ref,
    duration,
    hostnames,
    items,
    made,
    optional_port,
    raw_items,
    reference,
    texts,
)
from locallb.model.fields import FieldError, Fields, as_text
from locallb.model.gateway_objects import (
    ANYTHING,
    FIRST,
    GROUP,
    BackendRef,
    Filters,
    GatewayRoute,
    Meta,
    MirrorRef,
    ParentRef,
    Rank,
    RouteKind,
    RouteRule,
    path_rank,
    written_path_rank,
)
from locallb.model.http_routes import (
    Cors,
    Forward,
    GrpcMethod,
    HeaderChanges,
    Match,
    PathKind,
    PathMatch,
    PathRewrite,
    Redirect,
    RetryRule,
    SessionAffinity,
    SessionKind,
    ValueMatch,
)
from locallb.model.texts import fault_of, shown
from locallb.patterns import pattern

_Value = TypeVar("_Value")
_MAX = 16
_MAX_PREFIXES = 256
"""Characters of a path's known beginning."""
_ODD_PATHS = ("//", "/./", "/../", "%2f", "%2F", "#")
_PLAIN = pattern(r"[!-~]*")
_SPECIAL = frozenset("\\.[](){}*+?|^$")
_ESCAPES_AND_SETS = pattern(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]")
_EVERY_PATH = PathMatch(PathKind.PREFIX, "/")


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


class ReadMatch(NamedTuple):
    """A match, its precedence, and why it is broader than written, if it is."""

    match: Match
    rank: Rank
    problem: str = ""


def parse_match(path: str, item: object, *, is_grpc: bool) -> ReadMatch:
    """Read a match. Never raises."""
    problems: list[str] = []
    fields = _understood(problems, lambda: Fields.of(path, item))
    if fields is None:
        return ReadMatch(Match(), FIRST, problems[0])
    compared, rank = (_grpc_path if is_grpc else _path)(fields, problems)
    headers, many_headers = _values(fields, "headers", str.lower, problems)
    query, many_query = ((), 0) if is_grpc else _values(fields, "queryParams", str, problems)
    method = "" if is_grpc else _method(fields, problems)
    has_method = not is_grpc and bool(fields.get("method"))
    match = Match(compared, headers, query, method)
    return ReadMatch(match, (*rank, not has_method, -many_headers, -many_query), "; ".join(problems))


def _understood(problems: list[str], read: Callable[[], _Value]) -> _Value | None:
    """Return what is read; where it can't be, None, and note why."""
    try:
        return read()
    except FieldError as error:
        problems.append(str(error))
        return None


def _path(fields: Fields, problems: list[str]) -> tuple[PathMatch, tuple[int, int, int]]:
    inner = _understood(problems, lambda: fields.inner("path"))
    kind = _understood(problems, lambda: inner.choice("type", _PathType.PREFIX)) if inner else None
    value = _understood(problems, lambda: inner.text("value") or "/") if inner else None
    if inner is None or kind is None or value is None:
        return beginning_of_expression(value or ""), FIRST[:3]
    model_kind = PathKind(kind.value.removeprefix("Path"))
    compared = _understood(problems, lambda: _compared_path(inner, model_kind, value))
    if compared is None:
        is_expression = kind is _PathType.REGEX
        compared = beginning_of_expression(value) if is_expression else beginning_of_path(model_kind, value)
    return compared, written_path_rank(model_kind, value)


def _compared_path(fields: Fields, kind: PathKind, value: str) -> PathMatch:
    is_plain = kind is not PathKind.REGEX
    if is_plain and (any(sign in value for sign in _ODD_PATHS) or value.endswith(("/.", "/.."))):
        raise FieldError(f"{fields.at('value')} is {shown(value)}; give a path such as /cart, without . and .. in it")
    return made(fields, lambda: PathMatch(kind, value))


def beginning_of_path(kind: PathKind, value: str) -> PathMatch:
    """Match a path that the API refuses: exactly it if comparable all the same, else every path with its beginning."""
    try:
        return PathMatch(kind, value)
    except ValueError:
        return _beginning(_existing(value))


def beginning_of_expression(expression: str, *, ignores_case: bool = False) -> PathMatch:
    """Match all paths with the beginning that an expression requires, whatever its syntax."""
    return _beginning(_literal_prefix(expression), ignores_case=ignores_case)


def _beginning(existing: str, *, ignores_case: bool = False) -> PathMatch:
    """Match all paths with this beginning, which may end within an element."""
    try:
        expression = f"{'(?i)' if ignores_case else ''}{re.escape(existing)}.*"
        return PathMatch(PathKind.REGEX, expression) if existing.strip("/") else _EVERY_PATH
    except ValueError:  # RE2 is missing on this host
        return _EVERY_PATH


def _existing(value: str) -> str:
    """Return the beginning of a plain path up to what no path of a request has."""
    plain = _PLAIN.match(value)
    existing = re.split(r"[?#]", plain[0], maxsplit=1)[0] if plain else ""
    return existing[:_MAX_PREFIXES] if existing.startswith("/") else ""


def _literal_prefix(expression: str) -> str:
    """Return the plain text at the beginning of an expression."""
    text = expression.removeprefix("^")
    if _chooses(text):
        return ""
    existing, at = "", 0
    while at < len(text) and len(existing) < _MAX_PREFIXES:
        escaped = text[at] == "\\"
        literal = text[at + escaped : at + escaped + 1]
        if not literal or (literal.isalnum() if escaped else literal in _SPECIAL):
            break
        at += 1 + escaped
        if text[at : at + 1] in {"?", "*", "{"}:
            break
        existing += literal
    return _existing(existing)


def _chooses(expression: str) -> bool:
    """Return whether an expression may have a choice outside of groups, so that it has no beginning of its own."""
    depth = 0
    for character in _ESCAPES_AND_SETS.sub("", expression):
        depth += (character == "(") - (character == ")")
        if depth < 0 or (character == "|" and depth == 0):
            return True
    return depth != 0 and "|" in expression


def _grpc_path(fields: Fields, problems: list[str]) -> tuple[GrpcMethod | None, tuple[int, int, int]]:
    inner = _understood(problems, lambda: fields.inner("method"))
    kind = _understood(problems, lambda: inner.choice("type", _Compared.EXACT)) if inner else None
    if inner is None or kind is None:
        return None, FIRST[:3]
    regex, parts = kind is _Compared.REGEX, ["", ""]
    lengths = [0, 0]
    for number, name in enumerate(("service", "method")):
        text = _understood(problems, lambda name=name: inner.text(name))  # type: ignore[misc]
        lengths[number] = len(text or "")
        if text and _understood(problems, lambda text=text: made(inner, lambda: GrpcMethod(text, regex=regex))):  # type: ignore[misc]
            parts[number] = text
    if not any(lengths):
        return None, path_rank(None)
    return (GrpcMethod(parts[0], parts[1], regex) if any(parts) else None), (int(regex), -lengths[0], -lengths[1])


def _values(
    fields: Fields, name: str, of: Callable[[str], str], problems: list[str]
) -> tuple[tuple[ValueMatch, ...], int]:
    """Return the conditions of a list, the first of each name as the API specifies, and how many are written."""
    listed = _understood(problems, lambda: list(items(fields, name, _MAX)))
    named: dict[str, ValueMatch | None] = {}
    for item in listed or ():
        compared = _understood(problems, lambda item=item: _compared(item))  # type: ignore[misc]
        key = of(compared.name) if compared else item.path
        if compared is None and (compared := _present(item)):
            key = of(compared.name)
        named.setdefault(key, compared)
    return tuple(filter(None, named.values())), _MAX if listed is None else len(named)


def _compared(fields: Fields) -> ValueMatch:
    regex = fields.choice("type", _Compared.EXACT) is _Compared.REGEX
    return made(fields, lambda: ValueMatch(fields.text("name"), fields.text("value"), regex))


def _present(fields: Fields) -> ValueMatch | None:
    """Return the condition that there is any value, where the name is understood."""
    try:
        return ValueMatch(fields.text("name"), ".*", regex=True)
    except (FieldError, ValueError):
        return None


def _method(fields: Fields, problems: list[str]) -> str:
    """Return the method; an unknown one is compared as written."""
    existing = _understood(problems, lambda: fields.choice("method", _Method.ANY))
    if existing is not None:
        return existing.value
    written = fields.get("method")
    try:
        return Match(method=written).method if isinstance(written, str) else ""
    except ValueError:
        return ""


_MAX_OF_CORS = 64


def parse_filters(fields: Fields, namespace: str, kinds: tuple[str, ...]) -> Filters:
    """Read the filters of a rule or of a backend, which may be of these kinds. Raises FieldError for others."""
    filters, observed = Filters(), Counter[str]()
    for entry in items(fields, "filters", _MAX):
        kind = entry.text("type")
        if kind not in kinds:
            raise FieldError(f"{entry.at('type')} is {shown(kind)}, which isn't served; use one of {', '.join(kinds)}")
        observed[kind] += 1
        if observed[kind] > 1 and kind != "RequestMirror":
            raise FieldError(f"{entry.path} repeats {kind}; put all into one")
        name, add = _READERS[kind]
        filters = add(filters, entry.inner(name), namespace)
    return filters


def _request_headers(filters: Filters, fields: Fields, _namespace: str) -> Filters:
    return replace(filters, request=_headers(fields))


def _response_headers(filters: Filters, fields: Fields, _namespace: str) -> Filters:
    return replace(filters, response=_headers(fields))


def _headers(fields: Fields) -> HeaderChanges:
    removed = (as_text(path, item) for path, item in raw_items(fields, "remove", _MAX))
    return made(fields, lambda: HeaderChanges(_pairs(fields, "set"), _pairs(fields, "add"), tuple(removed)))


def _pairs(fields: Fields, name: str) -> tuple[tuple[str, str], ...]:
    """Return names and values; of several with one name the first counts, as the API specifies."""
    pairs: dict[str, tuple[str, str]] = {}
    for entry in items(fields, name, _MAX):
        pairs.setdefault(entry.text("name").lower(), (entry.text("name"), entry.text("value")))
    return tuple(pairs.values())


def _redirect(filters: Filters, fields: Fields, _namespace: str) -> Filters:
    port = fields.integer("port", 1, LARGEST_PORT) if fields.get("port") is not None else 0
    code = fields.integer("statusCode", 300, 399, 302)
    scheme, hostname = fields.text("scheme"), fields.text("hostname").lower()
    redirect = made(fields, lambda: Redirect(code, scheme, hostname, port, _path_rewrite(fields)))
    return replace(filters, redirect=redirect)


def _rewrite(filters: Filters, fields: Fields, _namespace: str) -> Filters:
    hostname = fields.text("hostname").lower()
    made(fields, lambda: Forward((), hostname))
    return replace(filters, hostname=hostname, path=_path_rewrite(fields))


_REPLACED = {"ReplaceFullPath": "replaceFullPath", "ReplacePrefixMatch": "replacePrefixMatch"}


def _path_rewrite(fields: Fields) -> PathRewrite | None:
    if fields.get("path") is None:
        return None
    inner = fields.inner("path")
    kind = inner.text("type")
    for name in ("replaceFullPath", "replacePrefixMatch"):
        if kind in _REPLACED and (inner.get(name) is not None) != (name == _REPLACED[kind]):
            raise FieldError(f"{inner.path} is of type {kind}; give {_REPLACED[kind]} and nothing else")
    if kind == "ReplaceFullPath":
        return made(inner, lambda: PathRewrite(inner.text("replaceFullPath") or "/"))
    if kind == "ReplacePrefixMatch":
        return made(inner, lambda: PathRewrite(inner.text("replacePrefixMatch"), prefix=True))
    raise FieldError(f"{inner.at('type')} is {shown(kind)}; use ReplaceFullPath or ReplacePrefixMatch")


def _mirror(filters: Filters, fields: Fields, namespace: str) -> Filters:
    backend = backend_ref(fields.inner("backendRef"), namespace)
    if fields.get("fraction") is None:
        share = fields.integer("percent", 0, 100, 100) * 10_000
    else:
        part = fields.inner("fraction")
        denominator = part.integer("denominator", 1, 2**31 - 1, 100)
        share = part.integer("numerator", 0, denominator) * 1_000_000 // denominator
    return replace(filters, mirrors=(*filters.mirrors, MirrorRef(backend, share)))


def _cors(filters: Filters, fields: Fields, _namespace: str) -> Filters:
    origins, methods, headers, exposed = (
        texts(fields, name, _MAX_OF_CORS) for name in ("allowOrigins", "allowMethods", "allowHeaders", "exposeHeaders")
    )
    credentials = fields.flag("allowCredentials") is True
    age = fields.integer("maxAge", 1, 2**31 - 1, 5)
    return replace(filters, cors=made(fields, lambda: Cors(origins, methods, headers, exposed, credentials, age)))


_READERS: Mapping[str, tuple[str, Callable[[Filters, Fields, str], Filters]]] = {
    "RequestHeaderModifier": ("requestHeaderModifier", _request_headers),
    "ResponseHeaderModifier": ("responseHeaderModifier", _response_headers),
    "RequestMirror": ("requestMirror", _mirror),
    "RequestRedirect": ("requestRedirect", _redirect),
    "URLRewrite": ("urlRewrite", _rewrite),
    "CORS": ("cors", _cors),
}
OF_HTTP = tuple(_READERS)
OF_GRPC = ("RequestHeaderModifier", "ResponseHeaderModifier", "RequestMirror")
OF_BACKENDS = ("RequestHeaderModifier", "ResponseHeaderModifier")
"""The kinds of filters that are served, of rules and of single backends."""


_MAX_RULES = 16
_MAX_MATCHES = 128
"""Of all rules of a route together."""


class _Lifetime(StrEnum):
    SESSION = "Session"
    PERMANENT = "Permanent"


def parse_rules(spec: Fields, namespace: str, problems: list[str], *, is_grpc: bool) -> tuple[RouteRule, ...]:
    """Parse spec.rules and note faults of all of them together; if absent, there is one for every request."""
    try:
        entries = raw_items(spec, "rules", _MAX_RULES)
    except FieldError as error:
        problems.append(str(error))
        return (ANYTHING.refused(str(error)),)
    rules = tuple(_rule(path, item, namespace, is_grpc=is_grpc) for path, item in entries)
    if (count := sum(len(rule.matches) for rule in rules)) > _MAX_MATCHES:
        problems.append(f"{spec.at('rules')} has {count} matches; {_MAX_MATCHES} are allowed, so split the route")
    return rules or (RouteRule(),)


def _rule(path: str, item: object, namespace: str, *, is_grpc: bool) -> RouteRule:
    """Read a rule; one with a problem keeps its matches, as its requests must not be served otherwise."""
    try:
        fields = Fields.of(path, item)
        matches = _matches(fields, is_grpc=is_grpc)
    except FieldError as error:
        return ANYTHING.refused(str(error))
    found, ranks = tuple(match.match for match in matches), tuple(match.rank for match in matches)
    rule = RouteRule(found)
    problems = [match.problem for match in matches if match.problem]
    try:
        rule = _checked(path, _served_rule(fields, namespace, found, is_grpc=is_grpc))
    except FieldError as error:
        problems.append(str(error))
    return replace(rule.refused("; ".join(problems)), ranks=ranks) if problems else rule


def _checked(path: str, rule: RouteRule) -> RouteRule:
    """Refuse a rule with contradicting parts."""
    redirects = rule.filters.redirect is not None
    if redirects and rule.filters.rewrites:
        return replace(rule, problem=f"{path} redirects and rewrites; keep one of both", incompatible=True)
    if redirects and rule.backends:
        return replace(rule, problem=f"{path} redirects and has backendRefs; keep one of both", incompatible=True)
    rewrite = rule.filters.redirect.path if rule.filters.redirect else rule.filters.path
    if rewrite and rewrite.prefix and not all(map(_is_by_prefix, rule.matches)):
        return rule.refused(f"{path} replaces a prefix that it doesn't match; match by PathPrefix")
    return rule


def _is_by_prefix(match: Match) -> bool:
    return isinstance(match.path, PathMatch) and match.path.kind is PathKind.PREFIX


def _matches(fields: Fields, *, is_grpc: bool) -> list[ReadMatch]:
    matches = [parse_match(path, item, is_grpc=is_grpc) for path, item in raw_items(fields, "matches", 64)]
    return matches or [parse_match("", {}, is_grpc=is_grpc)]


def _served_rule(fields: Fields, namespace: str, matches: tuple[Match, ...], *, is_grpc: bool) -> RouteRule:
    timeouts = fields.inner("timeouts")
    whole, attempt = duration(timeouts, "request"), duration(timeouts, "backendRequest")
    if whole and attempt > whole:
        raise FieldError(f"{timeouts.at('backendRequest')} is longer than request; make it shorter")
    return RouteRule(
        matches=matches,
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
    return tuple(_backend(item, namespace) for item in items(fields, "backendRefs", _MAX))


def _backend(fields: Fields, namespace: str) -> BackendRef:
    filters = parse_filters(fields, namespace, OF_BACKENDS)
    return replace(backend_ref(fields, namespace), request=filters.request, response=filters.response)


def _retry(fields: Fields) -> RetryRule:
    codes = raw_items(fields, "codes", 200)
    for path, item in codes:
        if isinstance(item, bool) or not isinstance(item, int):
            raise FieldError(f"{path} is {shown(item)}; use a status from 400 to 599")
    statuses = tuple(sorted({item for _, item in codes if isinstance(item, int)}))
    attempts, backoff = fields.integer("attempts", 0, 100, 1), duration(fields, "backoff")
    return made(fields, lambda: RetryRule(statuses, attempts, backoff))


def _session(fields: Fields) -> SessionAffinity:
    kind = fields.choice("type", SessionKind.COOKIE)
    inner = fields.inner(kind.value.lower())
    absolute, path = duration(fields, "absoluteTimeout"), inner.text("path")
    name = inner.text("name") or fields.text("sessionName") or "local-lb-session"
    is_permanent = inner.choice("lifetimeType", _Lifetime.SESSION) is _Lifetime.PERMANENT
    if is_permanent and not absolute:
        raise FieldError(f"{inner.at('lifetimeType')} is Permanent without absoluteTimeout; give one")
    return made(fields, lambda: SessionAffinity(name, kind, absolute if is_permanent else 0, path))


_MAX_PARENTS = 32
_WRITTEN = ("group", "kind", "namespace", "name", "sectionName", "port")
_WITH_MATCHES = frozenset({RouteKind.HTTP, RouteKind.GRPC})
_WITH_NAMES = frozenset({RouteKind.HTTP, RouteKind.GRPC, RouteKind.TLS})


def parse_route(kind: RouteKind, meta: Meta, data: Mapping[object, object]) -> GatewayRoute:
    """Read a route. What is understood of one with a problem stays, as its requests must not be served otherwise."""
    problems = [fault] if (fault := fault_of(data)) else []
    try:
        spec = Fields.of("spec", data.get("spec"))
    except FieldError as error:
        return GatewayRoute(kind, meta, problem=str(error))
    parents = tuple(_parents(spec, meta.key.namespace, problems))
    names = hostnames(spec, problems) if kind in _WITH_NAMES else ()
    rules = _rules(kind, spec, meta.key.namespace, problems)
    return GatewayRoute(kind, meta, parents, names, rules, "; ".join(problems))


def _rules(kind: RouteKind, spec: Fields, namespace: str, problems: list[str]) -> tuple[RouteRule, ...]:
    if kind in _WITH_MATCHES:
        return parse_rules(spec, namespace, problems, is_grpc=kind is RouteKind.GRPC)
    try:
        entries = list(items(spec, "rules", 16))
        rules = tuple(
            RouteRule(backends=parse_backends(entry, namespace), name=entry.text("name")) for entry in entries
        )
    except FieldError as error:
        problems.append(str(error))
        return ()
    if len(rules) != 1:
        problems.append(f"{spec.at('rules')} has {len(rules)} entries; give one rule")
    return rules


def _parents(spec: Fields, namespace: str, problems: list[str]) -> Iterator[ParentRef]:
    try:
        entries = raw_items(spec, "parentRefs", _MAX_PARENTS)
    except FieldError as error:
        problems.append(str(error))
        return
    for path, item in entries:
        try:
            yield _parent(Fields.of(path, item), namespace)
        except FieldError as error:
            problems.append(str(error))


def _parent(fields: Fields, namespace: str) -> ParentRef:
    written = {name: fields.get(name) for name in _WRITTEN}
    to = reference(fields, GROUP, "Gateway", namespace)
    return ParentRef(
        *to,
        fields.text("sectionName"),
        optional_port(fields),
        tuple((name, value) for name, value in written.items() if isinstance(value, str | int)),
    )
