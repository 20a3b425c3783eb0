"""Parses Ingresses and their classes. Never raises: a malformed object keeps its problem.

The bounds of the API are checked again, because manifests never passed an API server. The kinds are described as
`gateway.kinds` describes those of Gateway API.

Not here: the class and selection of an Ingress (`classes`), and requests (`kubernetes.api.discovery`).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from msgspec.structs import replace

from locallb.gateway.kinds import KINDS, ApiKind
from locallb.gateway.parsing import LARGEST_PORT, hostname, name_of, odd_host, raw_items, spec_of
from locallb.gateway.route_parsing import beginning_of_expression
from locallb.model.fields import FieldError, Fields, as_text
from locallb.model.gateway_objects import NO_HOST, Meta
from locallb.model.gateway_of_cluster import (
    FIRST,
    INGRESS_GROUP,
    Ingress,
    IngressBackend,
    IngressClass,
    IngressPath,
    IngressRule,
    IngressTls,
    everything_refused,
)
from locallb.model.http_routes import PathKind, PathMatch
from locallb.model.own_classes import DEFAULT_ANNOTATION
from locallb.model.texts import shown

CLASS_ANNOTATION = "kubernetes.io/ingress.class"
_MAX = 1000
_ODD_PATHS = ("//", "/./", "/../", "%2f", "%2F", "#")
_EXPRESSIONS = frozenset("()[]{}|^$*\\+")
"""Characters that make a path of the type ImplementationSpecific an expression for other controllers."""


class _PathType(StrEnum):
    EXACT = "Exact"
    PREFIX = "Prefix"
    OURS = "ImplementationSpecific"


def parse_ingress_class(meta: Meta, data: Mapping[object, object]) -> IngressClass:
    """Parse an IngressClass; one without a controller belongs to none."""
    is_default = meta.annotations.get(DEFAULT_ANNOTATION) == "true"
    try:
        spec = spec_of(data)
        return IngressClass(meta, spec.text("controller"), is_default, spec.get("parameters") is not None)
    except FieldError:
        return IngressClass(meta, "")


def parse_ingress(meta: Meta, data: Mapping[object, object]) -> Ingress:
    """Read an Ingress. The annotation of the class counts before the field, as the API says."""
    name = meta.annotations.get(CLASS_ANNOTATION)
    try:
        written = Fields.of("spec", data.get("spec")).text("ingressClassName")
        name = written or None if name is None else name
        spec = spec_of(data)
        default = _default(spec)
        tls, refused = _tls(spec)
        rules = tuple(_rule(path, item) for path, item in raw_items(spec, "rules", _MAX))
    except FieldError as error:
        return Ingress(meta, name, problem=str(error))
    problem = "" if rules or default else "spec has neither rules nor defaultBackend; give it one of both"
    return Ingress(meta, name, rules, tls, default, problem, refused)


def _default(spec: Fields) -> IngressBackend | None:
    """Parse the default backend; an invalid one stays, so that no other backend answers in its place."""
    if spec.get("defaultBackend") is None:
        return None
    try:
        return _backend(spec.inner("defaultBackend"))
    except FieldError as error:
        return IngressBackend(problem=str(error))


def _tls(spec: Fields) -> tuple[tuple[IngressTls, ...], tuple[str, ...]]:
    """Read the entries of TLS, as far as they can be understood, and why some can't."""
    entries, refused = [], []
    try:
        for path, item in raw_items(spec, "tls", _MAX):
            entry, why = _entry(path, item)
            refused += why
            entries += [entry] if entry else []
    except FieldError as error:
        refused.append(str(error))
    return tuple(entries), tuple(refused[:_MAX])


def _entry(path: str, item: object) -> tuple[IngressTls | None, list[str]]:
    """Parse an entry; None if no part of it is valid. One that lost all its hosts isn't for every name."""
    hosts: list[str] = []
    refused: list[str] = []
    try:
        fields = Fields.of(path, item)
        secret = name_of(fields, "secretName") if fields.text("secretName") else ""
        written = raw_items(fields, "hosts", _MAX)
    except FieldError as error:
        return None, [str(error)]
    for where, host in written:
        try:
            hosts.append(hostname(where, as_text(where, host)))
        except FieldError as error:
            refused.append(str(error))
    named = tuple(dict.fromkeys(host for host in hosts if host))
    return (IngressTls(named, secret) if named or not refused else None), refused


def _rule(path: str, item: object) -> IngressRule:
    """Parse a rule; the valid parts of an unserved one stay, as no other rule may get its requests."""
    try:
        fields = Fields.of(path, item)
    except FieldError as error:
        return IngressRule(NO_HOST, problem=str(error))
    try:
        host = hostname(fields.at("host"), fields.text("host"))
    except FieldError as error:
        host, problem = odd_host(fields.get("host")) or NO_HOST, str(error)
        return IngressRule(host, (everything_refused(problem),), problem)
    try:
        entries = raw_items(fields.inner("http"), "paths", _MAX)
    except FieldError as error:
        return IngressRule(host, (everything_refused(str(error)),))
    return IngressRule(host, tuple(_path(where, entry) for where, entry in entries))


def _path(where: str, item: object) -> IngressPath:
    try:
        fields = Fields.of(where, item)
    except FieldError as error:
        return everything_refused(str(error))
    path = fields.get("path")
    written = path if isinstance(path, str) else ""
    is_specific = isinstance(path, str | None) and fields.get("pathType") == _PathType.OURS
    try:
        backend = _backend(fields.inner("backend"))
    except FieldError as error:
        backend = IngressBackend(problem=str(error))
    try:
        return IngressPath(_match(fields), backend, written, is_specific=is_specific)
    except FieldError as error:
        return refused_path(IngressPath(None, backend, written, str(error), is_specific=is_specific))


def refused_path(path: IngressPath, *, ignores_case: bool = False) -> IngressPath:
    """Return an unservable path that matches all requests it might match, at its highest possible precedence."""
    match = beginning_of_expression(path.written, ignores_case=ignores_case)
    rank = (path.is_specific, -len(path.written.rstrip("/"))) if path.written else FIRST
    return replace(path, match=match, rank=rank)


def _match(fields: Fields) -> PathMatch:
    """Parse the comparison of a path. ImplementationSpecific is Prefix here; `/*` at its end is as elsewhere."""
    if fields.get("pathType") is None:
        raise FieldError(f"{fields.at('pathType')} is missing; use {' or '.join(_PathType)}")
    kind, path = fields.choice("pathType", _PathType.PREFIX), fields.text("path")
    if kind is _PathType.OURS:
        path = (path.removesuffix("*") if path.endswith("/*") else path) or "/"
        if _EXPRESSIONS & set(path):
            why = "expressions aren't served; give a plain path, of pathType Prefix or Exact"
            raise FieldError(f"{fields.at('path')} is {shown(path)}; {why}")
    if any(sign in path for sign in _ODD_PATHS) or path.endswith(("/.", "/..")):
        raise FieldError(f"{fields.at('path')} is {shown(path)}; give a path such as /cart, without . and .. in it")
    try:
        return PathMatch(PathKind.EXACT if kind is _PathType.EXACT else PathKind.PREFIX, path)
    except ValueError as error:
        raise FieldError(f"{fields.at('path')}: {error}") from None


def _backend(fields: Fields) -> IngressBackend:
    """Parse a backend; one without a Service stays, with the reason, so that no other backend answers in its place."""
    if fields.get("resource") is not None:
        return IngressBackend(problem=f"{fields.at('resource')} names no Service; only `service` is served")
    service = fields.inner("service")
    name, port = name_of(service), service.inner("port")
    if port.get("number") is not None:
        return IngressBackend(name, port.integer("number", 1, LARGEST_PORT))
    if not port.text("name"):
        raise FieldError(f"{service.at('port')} is missing; give it a number or a name")
    return IngressBackend(name, port_name=port.text("name"))


INGRESS_KINDS: Mapping[str, ApiKind] = {
    kind.name: kind
    for kind in (
        ApiKind("IngressClass", "ingressclasses", ("v1",), parse_ingress_class, namespaced=False, group=INGRESS_GROUP),
        ApiKind("Ingress", "ingresses", ("v1",), parse_ingress, group=INGRESS_GROUP),
    )
}
ROUTED_KINDS: Mapping[str, ApiKind] = {**KINDS, **INGRESS_KINDS}
"""All that routes are made of, Gateway API's among them."""
