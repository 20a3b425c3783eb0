"""The Services that a stack serves: of its classes, and selected by it. Others are never changed. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from msgspec.structs import replace

from locallb.config.settings import Classes, OtherServices, Settings
from locallb.model.identities import OF_INGRESSES, ObjectKey, ObjectKind, SharingKey
from locallb.model.objects import EMPTY, EndpointSlice, MalformedService, Service, ServiceType


def is_ours(service: Service | MalformedService, settings: Settings) -> bool:
    """Return whether this stack serves `service`."""
    if service.key.kind in OF_INGRESSES or is_internal(service):
        return True  # checked when Ingresses were bound, and internal ones selected
    return implements(service, settings.classes) and selects(service, settings.namespaces, settings.selector)


def is_internal(service: Service | MalformedService) -> bool:
    """Return whether `service` is of another type than LoadBalancer: nothing is written to its cluster."""
    return service.type is not ServiceType.LOAD_BALANCER


def selected(services: Iterable[Service], wanted: OtherServices) -> tuple[Service, ...]:
    """Return those Services of other types than LoadBalancer that a stack serves on request."""
    return tuple(
        service
        for service in services
        if service.type in wanted.types and selects(service, wanted.namespaces, wanted.selector)
    )


_OF_THE_WHOLE: Mapping[str, Any] = {"requested": (), "sharing_key": SharingKey(""), "annotations": EMPTY}
"""What a headless Service asks for and none of its pods by itself."""


def pods_of(
    services: Iterable[Service], slices: Iterable[EndpointSlice]
) -> Iterator[tuple[Service, tuple[EndpointSlice, ...]]]:
    """Return, for each pod with a hostname of a headless Service, a Service of its own, and its endpoints.

    Its name is `<hostname>.<service>`, as in the DNS of its cluster; no Service of a cluster has a dot in its name.
    """
    headless = {service.key: service for service in services if service.headless}
    pods: dict[ObjectKey, tuple[Service, list[EndpointSlice]]] = {}
    for each in slices if headless else ():
        service = headless.get(each.service)
        for endpoint in each.endpoints if service else ():
            if service and endpoint.hostname:
                key = service.key._replace(name=f"{endpoint.hostname}.{service.key.name}")
                pod = replace(service, key=key, headless=False, **_OF_THE_WHOLE)
                of_pod = replace(each, service=key, endpoints=(endpoint,))
                pods.setdefault(key, (pod, []))[1].append(of_pod)
    return ((pod, tuple(of_pod)) for _, (pod, of_pod) in sorted(pods.items()))


def implements(service: Service | MalformedService, classes: Classes) -> bool:
    if service.key.kind is ObjectKind.GATEWAY:
        return True  # those of other GatewayClasses aren't among the Services
    klass = service.load_balancer_class
    return classes.default if klass is None else klass in classes.names


def selects(service: Service | MalformedService, namespaces: Collection[str], selector: Mapping[str, str]) -> bool:
    """Return whether `service` is in one of `namespaces` and has all labels of `selector`; empty ones select all."""
    if namespaces and service.key.namespace not in namespaces:
        return False
    return all(service.labels.get(label) == value for label, value in selector.items())
