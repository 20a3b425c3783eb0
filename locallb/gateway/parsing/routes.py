"""Parses routes of any kind, with their rules and filters.

A malformed route keeps its problem and is never an exception. A rule that can't be served keeps its problem and its
matches; its neighbours are served. A rule with an unsupported filter answers with an error, as the API specifies:
without the filter it would serve something else than was requested. The bounds of the API's CRDs are checked again,
because manifests never passed an API server.

Not here: matches (`matches`), which texts are safe (`model.http_checks`), and the bindings of a route
(`gateway.attachment`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum

from msgspec.structs import replace

from locallb.gateway.parsing.fields import (
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
from locallb.gateway.parsing.matches import ReadMatch, parse_match
from locallb.model.fields import FieldError, Fields, as_text
from locallb.model.gateway_objects import GROUP, GatewayRoute, Meta, ParentRef, RouteKind
from locallb.model.gateway_rules import ANYTHING, BackendRef, Filters, MirrorRef, RouteRule
from locallb.model.http_policies import Cors, HeaderChanges, RetryRule, SessionAffinity, SessionKind
from locallb.model.http_routes import Forward, Match, PathKind, PathMatch, PathRewrite, Redirect
from locallb.model.texts import fault_of, shown

_MAX = 16
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
    redirect = made(fields, lambda: Redirect(code, scheme, hostname, port, _path(fields)))
    return replace(filters, redirect=redirect)


def _rewrite(filters: Filters, fields: Fields, _namespace: str) -> Filters:
    hostname = fields.text("hostname").lower()
    made(fields, lambda: Forward((), hostname))
    return replace(filters, hostname=hostname, path=_path(fields))


_REPLACED = {"ReplaceFullPath": "replaceFullPath", "ReplacePrefixMatch": "replacePrefixMatch"}


def _path(fields: Fields) -> PathRewrite | None:
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


def parse_rules(spec: Fields, namespace: str, problems: list[str], *, is_grpc: bool = False) -> tuple[RouteRule, ...]:
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
