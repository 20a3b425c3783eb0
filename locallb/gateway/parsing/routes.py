"""Parses a route of any kind. Never raises: an invalid one keeps its problem.

Not here: its rules (`rules`), and its bindings (`routes.attachment`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from locallb.gateway.parsing.fields import hostnames, items, raw_items
from locallb.gateway.parsing.references import optional_port, reference
from locallb.gateway.parsing.rules import parse_backends, parse_rules
from locallb.model.fields import FieldError, Fields
from locallb.model.gateway.objects import GROUP, Meta, ParentRef, Route, RouteKind
from locallb.model.gateway.rules import Rule
from locallb.model.texts import fault_of

_MAX_PARENTS = 32
_WRITTEN = ("group", "kind", "namespace", "name", "sectionName", "port")
_WITH_MATCHES = frozenset({RouteKind.HTTP, RouteKind.GRPC})
_WITH_NAMES = frozenset({RouteKind.HTTP, RouteKind.GRPC, RouteKind.TLS})


def parse_route(kind: RouteKind, meta: Meta, data: Mapping[object, object]) -> Route:
    """Read a route. What is understood of one with a problem stays, as its requests must not be served otherwise."""
    problems = [fault] if (fault := fault_of(data)) else []
    try:
        spec = Fields.of("spec", data.get("spec"))
    except FieldError as error:
        return Route(kind, meta, problem=str(error))
    parents = tuple(_parents(spec, meta.key.namespace, problems))
    names = hostnames(spec, problems) if kind in _WITH_NAMES else ()
    rules = _rules(kind, spec, meta.key.namespace, problems)
    return Route(kind, meta, parents, names, rules, "; ".join(problems))


def _rules(kind: RouteKind, spec: Fields, namespace: str, problems: list[str]) -> tuple[Rule, ...]:
    if kind in _WITH_MATCHES:
        return parse_rules(spec, namespace, problems, is_grpc=kind is RouteKind.GRPC)
    try:
        entries = list(items(spec, "rules", 16))
        rules = tuple(Rule(backends=parse_backends(entry, namespace), name=entry.text("name")) for entry in entries)
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
