"""Parses a rule of a route. A rule that can't be served keeps its problem and its matches; its neighbours are served.

The bounds of the API's CRDs are checked again, because manifests never met an API server. Not here: matches
(`matches`), filters (`filters`), the rest of a route (`routes`), which texts are safe (`model.http.checks`).
"""

from __future__ import annotations

from enum import StrEnum

from msgspec.structs import replace

from locallb.gateway.parsing.fields import duration, items, made, raw_items
from locallb.gateway.parsing.filters import OF_BACKENDS, OF_GRPC, OF_HTTP, parse_filters
from locallb.gateway.parsing.matches import ReadMatch, parse_match
from locallb.gateway.parsing.references import backend_ref
from locallb.model.fields import FieldError, Fields
from locallb.model.formatting import shown
from locallb.model.gateway.rules import ANYTHING, BackendRef, Rule
from locallb.model.http.policies import Retry, Session, SessionKind
from locallb.model.http.routes import Match, PathKind, PathMatch

_MAX_RULES = 16
_MAX_MATCHES = 128
"""Of all rules of a route together."""
_MAX = 16


class _Lifetime(StrEnum):
    SESSION = "Session"
    PERMANENT = "Permanent"


def parse_rules(spec: Fields, namespace: str, problems: list[str], *, is_grpc: bool = False) -> tuple[Rule, ...]:
    """Parse spec.rules and note faults of all of them together; if absent, there is one for every request."""
    try:
        entries = raw_items(spec, "rules", _MAX_RULES)
    except FieldError as error:
        problems.append(str(error))
        return (ANYTHING.refused(str(error)),)
    rules = tuple(_rule(path, item, namespace, is_grpc=is_grpc) for path, item in entries)
    if (count := sum(len(rule.matches) for rule in rules)) > _MAX_MATCHES:
        problems.append(f"{spec.at('rules')} has {count} matches; {_MAX_MATCHES} are allowed, so split the route")
    return rules or (Rule(),)


def _rule(path: str, item: object, namespace: str, *, is_grpc: bool) -> Rule:
    """Read a rule; one with a problem keeps its matches, as its requests must not be served otherwise."""
    try:
        fields = Fields.of(path, item)
        matches = _matches(fields, is_grpc=is_grpc)
    except FieldError as error:
        return ANYTHING.refused(str(error))
    found, ranks = tuple(match.match for match in matches), tuple(match.rank for match in matches)
    rule = Rule(found)
    problems = [match.problem for match in matches if match.problem]
    try:
        rule = _checked(path, _served_rule(fields, namespace, found, is_grpc=is_grpc))
    except FieldError as error:
        problems.append(str(error))
    return replace(rule.refused("; ".join(problems)), ranks=ranks) if problems else rule


def _checked(path: str, rule: Rule) -> Rule:
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


def _served_rule(fields: Fields, namespace: str, matches: tuple[Match, ...], *, is_grpc: bool) -> Rule:
    timeouts = fields.inner("timeouts")
    whole, attempt = duration(timeouts, "request"), duration(timeouts, "backendRequest")
    if whole and attempt > whole:
        raise FieldError(f"{timeouts.at('backendRequest')} is longer than request; make it shorter")
    return Rule(
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
