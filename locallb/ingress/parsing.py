"""Parses Ingresses and their classes, and selects those that are ours, by shared address, with the objects they need.

Never raises: a malformed object keeps its problem. The bounds of the API are checked again, because manifests never
passed an API server. The kinds are described as `gateway.kinds` describes those of Gateway API.

Not here: the served traffic (`translation`), and requests to a cluster (`kubernetes.api.discovery`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from enum import StrEnum

from msgspec.structs import replace

from locallb.config.settings import AddressPer, IngressSettings, Settings
from locallb.gateway.kinds import KINDS, SECRET, SERVICE, ApiKind, ExistingObjects, gathered, of_kinds
from locallb.gateway.parsing import LARGEST_PORT, hostname, name_of, odd_host, raw_items, spec_of
from locallb.gateway.route_parsing import beginning_of_expression
from locallb.model.fields import FieldError, Fields, as_text
from locallb.model.gateway_objects import NO_HOST, Meta, Named, Reference
from locallb.model.gateway_of_cluster import (
    FIRST,
    INGRESS_CONTROLLER,
    INGRESS_GROUP,
    GatewayObjects,
    Ingress,
    IngressBackend,
    IngressClass,
    IngressPath,
    IngressRule,
    IngressTls,
    ObjectOfCluster,
    everything_refused,
)
from locallb.model.http_routes import PathKind, PathMatch
from locallb.model.identities import ClusterName, ObjectKey, ObjectKind
from locallb.model.own_classes import DEFAULT_ANNOTATION
from locallb.model.texts import clipped, counted, few, shown

_EXAMPLES = 3


def our_classes(objects: GatewayObjects, settings: IngressSettings) -> frozenset[str]:
    """Return the served classes: all of our controller, or the one that the stack names."""
    controllers = {ingress_class.meta.key.name: ingress_class.controller for ingress_class in objects.ingress_classes}
    if settings.is_off:
        return frozenset()
    if settings.class_name is None:
        return frozenset(name for name, controller in controllers.items() if controller == INGRESS_CONTROLLER)
    is_free = controllers.get(settings.class_name, INGRESS_CONTROLLER) == INGRESS_CONTROLLER
    return frozenset({settings.class_name} if is_free else ())


def class_of(ingress: Ingress, objects: GatewayObjects) -> str:
    """Return the class of an Ingress: without a class name the default one, if any; else empty."""
    if ingress.class_name is not None:
        return ingress.class_name
    return next(
        (ingress_class.meta.key.name for ingress_class in objects.ingress_classes if ingress_class.is_default), ""
    )


def of_our_classes(objects: GatewayObjects, settings: IngressSettings) -> tuple[Ingress, ...]:
    """Return the Ingresses of the classes that are served, the oldest first."""
    ours = our_classes(objects, settings)
    mine = (
        ingress for ingress in objects.ingresses if class_of(ingress, objects) in ours and not ingress.meta.deleting
    )
    return tuple(sorted(mine, key=lambda ingress: ingress.meta.age)) if ours else ()


def our_ingresses(objects: GatewayObjects, settings: Settings) -> tuple[Ingress, ...]:
    """Return the Ingresses that the stack selects, the oldest first."""
    return tuple(
        ingress for ingress in of_our_classes(objects, settings.ingress) if is_selected(ingress.meta, settings)
    )


def grouped(objects: GatewayObjects, settings: Settings) -> Mapping[ObjectKey, tuple[Ingress, ...]]:
    """Return the Ingresses that share an address, the oldest first, by the key of its owner."""
    groups: dict[ObjectKey, list[Ingress]] = {}
    for ingress in our_ingresses(objects, settings):
        key = _key(ingress, class_of(ingress, objects), objects.cluster, settings.ingress.address)
        groups.setdefault(key, []).append(ingress)
    return {key: tuple(ingresses) for key, ingresses in groups.items()}


def _key(ingress: Ingress, name: str, cluster: ClusterName, per: AddressPer) -> ObjectKey:
    match per:
        case AddressPer.INGRESS:
            return ObjectKey(cluster, *ingress.meta.key, ObjectKind.INGRESS)
        case AddressPer.NAMESPACE:
            return ObjectKey(cluster, ingress.meta.key.namespace, name, ObjectKind.INGRESS_CLASS)
        case AddressPer.CLASS:
            return ObjectKey(cluster, "", name, ObjectKind.INGRESS_CLASS)


def is_selected(meta: Meta, settings: Settings) -> bool:
    """Return whether the stack serves objects of this namespace and with these labels."""
    labels = meta.labels
    is_near = not settings.namespaces or meta.key.namespace in settings.namespaces
    return is_near and all(labels.get(label) == value for label, value in settings.selector.items())


def of_missing_classes(objects: GatewayObjects, settings: IngressSettings) -> tuple[Ingress, ...]:
    """Return the Ingresses of which the cluster hasn't the class, whoever would serve it; none where that is off."""
    existing = {"", *(each.meta.key.name for each in objects.ingress_classes), *our_classes(objects, settings)}
    missing = (ingress for ingress in objects.ingresses if class_of(ingress, objects) not in existing)
    return () if settings.is_off else tuple(ingress for ingress in missing if not ingress.meta.deleting)


def left_out(objects: GatewayObjects, settings: Settings) -> Iterator[str]:
    """Return which Ingresses aren't served, where any could be, unless it is because their class isn't there."""
    ours = our_classes(objects, settings.ingress)
    mine = of_our_classes(objects, settings.ingress)
    names = {ingress.meta.key for ingress in mine}
    others = [ingress for ingress in objects.ingresses if ingress.meta.key not in names and not ingress.meta.deleting]
    missing = {ingress.meta.key for ingress in of_missing_classes(objects, settings.ingress)}
    named = [ingress for ingress in others if class_of(ingress, objects) and ingress.meta.key not in missing]
    classless = [ingress for ingress in others if not class_of(ingress, objects)]
    served = ", ".join(sorted(map(clipped, ours)))
    if named and ours:
        yield _left_out(objects, named, f"of another class (served: {served})")
    if classless and ours:
        remedy = f"write one into spec.ingressClassName (served: {served}), or annotate its IngressClass as the default"
        yield _left_out(objects, classless, f"they have no class, and no IngressClass is the default; {remedy}")
    if unselected := [ingress for ingress in mine if not is_selected(ingress.meta, settings)]:
        yield _left_out(objects, unselected, "local-lb:namespaces or local-lb:selector leaves them out")


def _left_out(objects: GatewayObjects, ingresses: list[Ingress], why: str) -> str:
    examples = few(
        [f"{objects.cluster}/ingresses/{clipped(str(ingress.meta.key))}" for ingress in ingresses], _EXAMPLES
    )
    return f"{counted(len(ingresses), 'Ingress', 'Ingresses')} left out: {why}: {examples}"


def class_notices(objects: GatewayObjects, settings: IngressSettings) -> Iterator[str]:
    """Yield why the class that the stack names isn't served, and notices about unread parts of classes."""
    for ingress_class in objects.ingress_classes:
        name = clipped(ingress_class.meta.key.name)
        if (
            settings.class_name == ingress_class.meta.key.name
            and ingress_class.controller != INGRESS_CONTROLLER
            and not settings.is_off
        ):
            yield (
                f"{objects.cluster}: IngressClass {name} has the controller {clipped(ingress_class.controller)}, so its"
                f" Ingresses are left alone; give it {INGRESS_CONTROLLER}, or name another class in local-lb:ingress"
            )
        elif ingress_class.controller == INGRESS_CONTROLLER and ingress_class.has_parameters:
            yield f"{objects.cluster}: IngressClass {name} names parameters, and none are known here; leave them out"


CLASS, INGRESS = "IngressClass", "Ingress"
_EVERY_CLASS = IngressSettings()


def wanted_kinds(served: Collection[str], existing: ExistingObjects) -> tuple[str, ...]:
    """Return the needed kinds: readable ones and core ones.

    They are requested in stages, so that nothing else is: classes first, then Ingresses if a class is ours, then
    Secrets and Services if an Ingress is of such a class.
    """
    if not {CLASS, INGRESS} <= set(served):
        return ()
    if not any(our_classes(objects, _EVERY_CLASS) for objects in of_kinds(existing, CLASS)):
        return (CLASS,)
    if not any(of_our_classes(objects, _EVERY_CLASS) for objects in of_kinds(existing, CLASS, INGRESS)):
        return CLASS, INGRESS
    return CLASS, INGRESS, SECRET, SERVICE


def named_objects(objects: Iterable[ObjectOfCluster]) -> frozenset[Reference]:
    """Return the Secrets that Ingresses name as certificates, in their own namespaces: others are never read."""
    return frozenset(
        Reference("", SECRET, Named(ingress.meta.key.namespace, entry.secret))
        for of_cluster in gathered(objects).values()
        for ingress in of_our_classes(of_cluster, _EVERY_CLASS)
        for entry in ingress.tls
        if entry.secret
    )


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
