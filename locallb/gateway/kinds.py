"""The kinds of Gateway API that are read, with their versions and parsers, and the objects that Gateways need of each.

Versions are those of the standard and the experimental channel, preferred ones first; they are the same in all fields
that are used. Objects of a live cluster are requested in stages: classes first, then Gateways if a class is ours, then
all else if there is a Gateway. Not here: requests, and the GatewayClasses of a stack (`translation.our_classes`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from locallb.gateway.listeners import Grants, attached_sets
from locallb.gateway.parsing import (
    parse_class,
    parse_gateway,
    parse_grant,
    parse_listener_set,
    parse_meta,
    parse_policy,
    refused_listeners,
)
from locallb.gateway.route_parsing import parse_route
from locallb.gateway.translation import our_classes
from locallb.model.fields import StructuralFault, text_of
from locallb.model.gateway_objects import (
    GROUP,
    BackendTlsPolicy,
    Gateway,
    GatewayClass,
    GatewayListener,
    GatewayRoute,
    ListenerSet,
    Meta,
    Reference,
    ReferenceGrant,
    RouteKind,
)
from locallb.model.gateway_of_cluster import (
    ApiObject,
    AuthorityBundle,
    BackendService,
    GatewayObjects,
    Ingress,
    IngressClass,
    Namespace,
    ObjectOfCluster,
    TlsSecret,
)
from locallb.model.identities import ClusterName

Document = Mapping[Any, Any]
_Retained = TypeVar("_Retained", bound=GatewayClass | Gateway | ListenerSet | BackendTlsPolicy | IngressClass | Ingress)


class ApiKind(Struct, frozen=True):
    """A kind of Gateway API, or of another group."""

    name: str
    plural: str
    versions: tuple[str, ...]
    parse: Callable[[Meta, Document], ApiObject | None]
    namespaced: bool = True
    group: str = GROUP

    def path(self, version: str) -> str:
        """Return where all of them are listed."""
        return f"/apis/{self.group}/{version}/{self.plural}"


def _routes(kind: RouteKind, *versions: str) -> ApiKind:
    return ApiKind(kind.value, f"{kind.value.lower()}s", versions, partial(parse_route, kind))


KINDS: Mapping[str, ApiKind] = {
    kind.name: kind
    for kind in (
        ApiKind("GatewayClass", "gatewayclasses", ("v1", "v1beta1"), parse_class, namespaced=False),
        ApiKind("Gateway", "gateways", ("v1", "v1beta1"), parse_gateway),
        ApiKind("ListenerSet", "listenersets", ("v1",), parse_listener_set),
        ApiKind("ReferenceGrant", "referencegrants", ("v1", "v1beta1"), parse_grant),
        ApiKind("BackendTLSPolicy", "backendtlspolicies", ("v1", "v1alpha3"), parse_policy),
        _routes(RouteKind.HTTP, "v1", "v1beta1"),
        _routes(RouteKind.GRPC, "v1"),
        _routes(RouteKind.TLS, "v1", "v1alpha3", "v1alpha2"),
        _routes(RouteKind.TCP, "v1", "v1alpha2"),
        _routes(RouteKind.UDP, "v1", "v1alpha2"),
    )
}


CLUSTER_SCOPED = frozenset(kind.name for kind in KINDS.values() if not kind.namespaced)
"""Kinds without a namespace."""


def kind_of_object(document: Document, kinds: Mapping[str, ApiKind] = KINDS) -> ApiKind | None:
    """Return which of the kinds an object is of, in a version that is read; None if it is none."""
    version, name = document.get("apiVersion"), document.get("kind")
    kind = kinds.get(name) if isinstance(name, str) else None
    if kind is None or not isinstance(version, str):
        return None
    group, _, number = version.partition("/")
    return kind if group == kind.group and number in kind.versions else None


def parse_api_object(document: Document, kinds: Mapping[str, ApiKind] = KINDS) -> ApiObject | None:
    """Parse an object of one of the kinds. Never raises; None if it has no name, or another kind."""
    kind = kind_of_object(document, kinds)
    meta = parse_meta(document, namespaced=kind.namespaced) if kind else None
    parsed = kind.parse(meta, document) if kind and meta else None
    return _refused(parsed, meta.problem) if meta and meta.problem else parsed


def _refused(parsed: ApiObject | None, why: str) -> ApiObject | None:
    """Return an object that isn't understood: as refused if it receives requests, else None."""
    if not isinstance(parsed, Gateway | ListenerSet | GatewayRoute | BackendTlsPolicy | Ingress):
        return None
    problem = "; ".join(filter(None, (why, parsed.problem)))
    if not isinstance(parsed, ListenerSet):
        return replace(parsed, problem=problem)
    return replace(parsed, problem=problem, listeners=refused_listeners(parsed.listeners, problem))


def with_faults(parsed: ApiObject, document: Document, faults: Sequence[StructuralFault]) -> ApiObject | None:
    """Return an object with these faults: a faulty rule or listener is refused, for any other fault the whole object.

    Parts that the parser refused keep their reason. None if no part can be used.
    """
    if isinstance(parsed, GatewayRoute):
        return _route_with_faults(parsed, faults)
    if isinstance(parsed, Gateway | ListenerSet):
        names = _listener_names(document)
        of_listeners = {
            names[number]: fault.sentence
            for fault in reversed(faults)
            if (number := _number(fault, "listeners", names)) is not None
        }
        listeners = tuple(
            replace(listener, problem=listener.problem or of_listeners.get(listener.name, ""))
            for listener in parsed.listeners
        )
        parsed = replace(parsed, listeners=listeners)
        faults = [fault for fault in faults if _number(fault, "listeners", names) is None]
    return _refused(parsed, faults[0].sentence) if faults and not getattr(parsed, "problem", "") else parsed


def _listener_names(document: Document) -> Sequence[str]:
    spec = document.get("spec")
    listed = spec.get("listeners") if isinstance(spec, Mapping) else None
    entries = listed if isinstance(listed, list) else []
    return [text_of(entry.get("name")) if isinstance(entry, Mapping) else "" for entry in entries]


def _route_with_faults(route: GatewayRoute, faults: Sequence[StructuralFault]) -> GatewayRoute:
    of_rules = {_number(fault, "rules", route.rules): fault.sentence for fault in reversed(faults)}
    rules = tuple(
        rule.refused(of_rules[number]) if number in of_rules else rule for number, rule in enumerate(route.rules)
    )
    return replace(route, rules=rules, problem=route.problem or of_rules.get(None, ""))


def _number(fault: StructuralFault, field: str, entries: Sequence[object]) -> int | None:
    """Return in which of a field's entries a fault is; None for any other place."""
    match fault.path:
        case (str(name), int(number), *_) if name == field and number < len(entries):
            return number
    return None


def gathered(objects: Iterable[ObjectOfCluster]) -> Mapping[ClusterName, GatewayObjects]:
    """Sort objects by cluster and kind; of several of one name the first counts."""
    by_cluster: dict[ClusterName, list[ApiObject]] = {}
    for cluster, api_object in objects:
        by_cluster.setdefault(cluster, []).append(api_object)
    return {cluster: _gathered(cluster, api_objects) for cluster, api_objects in by_cluster.items()}


def _gathered(cluster: ClusterName, objects: Iterable[ApiObject]) -> GatewayObjects:
    by_type: dict[type, list[Any]] = {}
    for api_object in objects:
        by_type.setdefault(type(api_object), []).append(api_object)

    def of(kind: type) -> list[Any]:
        return by_type.get(kind, [])

    return GatewayObjects(
        cluster,
        _first(of(GatewayClass)),
        _first(of(Gateway)),
        _first(of(ListenerSet)),
        _first_routes(of(GatewayRoute)),
        tuple(of(ReferenceGrant)),
        _first(of(BackendTlsPolicy)),
        {namespace.name: namespace.labels for namespace in of(Namespace)},
        {service.key: service for service in reversed(of(BackendService))},
        {secret.key: secret for secret in reversed(of(TlsSecret))},
        {bundle.key: bundle for bundle in reversed(of(AuthorityBundle))},
        _first(of(IngressClass)),
        _first(of(Ingress)),
    )


def _first(listed: Sequence[_Retained]) -> tuple[_Retained, ...]:
    """Return the objects of a kind in the order of their names; of several of one name the first."""
    named = {listed_object.meta.key: listed_object for listed_object in reversed(listed)}
    return tuple(named[name] for name in sorted(named))


def _first_routes(listed: Sequence[GatewayRoute]) -> tuple[GatewayRoute, ...]:
    """Return routes likewise; those of one name may be of several kinds."""
    named = {(route.meta.key, route.kind): route for route in reversed(listed)}
    return tuple(named[name] for name in sorted(named))


CLASS, GATEWAY = "GatewayClass", "Gateway"
NAMESPACE, SECRET, SERVICE, CONFIG_MAP = "Namespace", "Secret", "Service", "ConfigMap"
_OTHERS = (*(kind for kind in KINDS if kind not in {CLASS, GATEWAY}), NAMESPACE, SECRET, CONFIG_MAP, SERVICE)
_NAMES: Mapping[type[ApiObject], str] = {
    BackendService: SERVICE,
    Namespace: NAMESPACE,
    TlsSecret: SECRET,
    AuthorityBundle: CONFIG_MAP,
    IngressClass: "IngressClass",
    Ingress: "Ingress",
}
_SECRET, _CONFIG_MAP = ("", SECRET), ("", CONFIG_MAP)

ExistingObjects = Mapping[str, Collection[ObjectOfCluster]]
"""All objects by kind; kinds with unknown contents are absent."""


def kind_of(api_object: ApiObject) -> str:
    """Return the API's kind of an object."""
    if isinstance(api_object, GatewayRoute):
        return api_object.kind.value
    name = type(api_object).__name__.lower()
    return _NAMES.get(type(api_object)) or next(kind for kind in KINDS if kind.lower() == name)


def by_kind(objects: Iterable[ObjectOfCluster], kinds: Iterable[str]) -> dict[str, list[ObjectOfCluster]]:
    """Group objects by kind; these kinds are always present."""
    sorted_by: dict[str, list[ObjectOfCluster]] = {kind: [] for kind in kinds}
    for listed in objects:
        sorted_by.setdefault(kind_of(listed.object), []).append(listed)
    return sorted_by


def of_kinds(existing: ExistingObjects, *kinds: str) -> Collection[GatewayObjects]:
    """Return the objects of these kinds, of each cluster."""
    return gathered(listed for kind in kinds for listed in existing.get(kind, ())).values()


def wanted_kinds(served: Collection[str], existing: ExistingObjects) -> tuple[str, ...]:
    """Return the needed kinds: served ones and core ones."""
    if not {CLASS, GATEWAY} <= set(served):
        return ()
    if not any(our_classes(objects, None) for objects in of_kinds(existing, CLASS)):
        return (CLASS,)
    if not any(our_gateways(objects) for objects in of_kinds(existing, CLASS, GATEWAY)):
        return CLASS, GATEWAY
    return (CLASS, GATEWAY, *(kind for kind in _OTHERS if kind in served or kind not in KINDS))


def our_gateways(objects: GatewayObjects) -> tuple[Gateway, ...]:
    """Return the Gateways of our classes."""
    classes = {gateway_class.meta.key.name for gateway_class in our_classes(objects, None)}
    return tuple(gateway for gateway in objects.gateways if gateway.class_name in classes)


def named_objects(objects: Iterable[ObjectOfCluster]) -> frozenset[Reference]:
    """Return the Secrets and ConfigMaps that they name for TLS and may reference; no others are read."""
    clusters = gathered(objects).values()
    return frozenset(reference for cluster in clusters for reference in (*_secrets(cluster), *_bundles(cluster)))


def _secrets(objects: GatewayObjects) -> Iterator[Reference]:
    """Return the Secrets that listeners name as certificates, and Gateways as what backends are shown."""
    grants = Grants(objects.grants)
    for gateway in our_gateways(objects):
        shown = gateway.client_certificate
        if shown and shown[:2] == _SECRET and grants.allow(gateway.reference, shown):
            yield shown
    for owner, listener in _listeners(objects):
        for reference in listener.tls.certificates if listener.tls else ():
            if reference[:2] == _SECRET and grants.allow(owner, reference):
                yield reference


def _bundles(objects: GatewayObjects) -> Iterator[Reference]:
    """Return the ConfigMaps that Gateways of ours name as authorities, and where there are any, policies."""
    grants, gateways = Grants(objects.grants), our_gateways(objects)
    for gateway in gateways:
        named = (
            authority for requested in gateway.validations.values() if requested for authority in requested.authorities
        )
        config_maps = (reference for reference in named if reference[:2] == _CONFIG_MAP)
        yield from (reference for reference in config_maps if grants.allow(gateway.reference, reference))
    for policy in objects.policies if gateways else ():
        yield from (reference for reference in policy.authorities if reference[:2] == _CONFIG_MAP)


def _listeners(objects: GatewayObjects) -> Iterator[tuple[Reference, GatewayListener]]:
    for gateway in our_gateways(objects):
        owner = Reference(GROUP, GATEWAY, gateway.meta.key)
        yield from ((owner, listener) for listener in gateway.listeners)
        for listener_set in attached_sets(gateway, objects):
            yield from ((listener_set.reference, listener) for listener in listener_set.listeners)
