"""Parses a route of any kind. Never raises: one that can't be understood keeps its problem.

Not here: its rules (`rules`), and what it is bound to (`routes.attachment`).
"""

from __future__ import annotations

from collections.abc import Mapping

from locallb.gateway.parsing.fields import hostnames, items
from locallb.gateway.parsing.references import optional_port, reference
from locallb.gateway.parsing.rules import parse_backends, parse_rules
from locallb.model.fields import FieldError, Fields
from locallb.model.gateway.objects import GROUP, Meta, ParentRef, Route, RouteKind
from locallb.model.gateway.rules import Rule

_MOST_PARENTS = 32
_WRITTEN = ("group", "kind", "namespace", "name", "sectionName", "port")
_WITH_MATCHES = frozenset({RouteKind.HTTP, RouteKind.GRPC})
_WITH_NAMES = frozenset({RouteKind.HTTP, RouteKind.GRPC, RouteKind.TLS})


def parse_route(kind: RouteKind, meta: Meta, data: Mapping[object, object]) -> Route:
    """Read a route."""
    parents: tuple[ParentRef, ...] = ()
    names: tuple[str, ...] = ()
    rules: tuple[Rule, ...] = ()
    problems, spec = [], Fields("spec", {})
    try:
        spec = Fields.of("spec", data.get("spec"))
        parents = tuple(_parent(item, meta.key.namespace) for item in items(spec, "parentRefs", _MOST_PARENTS))
    except FieldError as error:
        problems.append(str(error))
    try:
        names = hostnames(spec) if kind in _WITH_NAMES else ()
        rules = _rules(kind, spec, meta.key.namespace)
    except FieldError as error:
        problems.append(str(error))
    return Route(kind, meta, parents, names, rules, "; ".join(problems))


def _rules(kind: RouteKind, spec: Fields, namespace: str) -> tuple[Rule, ...]:
    if kind in _WITH_MATCHES:
        return parse_rules(spec, namespace, is_grpc=kind is RouteKind.GRPC)
    entries = list(items(spec, "rules", 16))
    if len(entries) != 1:
        raise FieldError(f"{spec.at('rules')} has {len(entries)} entries; give one rule")
    return tuple(Rule(backends=parse_backends(entry, namespace), name=entry.text("name")) for entry in entries)


def _parent(fields: Fields, namespace: str) -> ParentRef:
    written = {name: fields.get(name) for name in _WRITTEN}
    to = reference(fields, GROUP, "Gateway", namespace)
    return ParentRef(
        *to,
        fields.text("sectionName"),
        optional_port(fields),
        tuple((name, value) for name, value in written.items() if isinstance(value, str | int)),
    )
