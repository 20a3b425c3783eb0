"""Objects of a live cluster that Gateways need, in stages, so that nothing else is requested.

Classes are requested first, then Gateways if a class is ours, then all else if there is a Gateway. Not here: requests,
and which GatewayClasses a stack chooses (`translation.our_classes`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from locallb.gateway.kinds import KINDS, gathered
from locallb.gateway.listeners import Grants, attached_sets
from locallb.gateway.translation import our_classes
from locallb.model.gateway_objects import GROUP, Gateway, GatewayListener, GatewayRoute, Reference
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
