"""The Services that a stack serves: of its classes, and selected by it. Others are never changed. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from msgspec.structs import replace

from locallb.config.settings import Classes, OtherServices, Settings
from locallb.model.identities import OF_INGRESSES, ObjectKind
from locallb.model.objects import MalformedService, Service, ServiceType
from locallb.model.snapshot import Snapshot


def is_ours(service: Service | MalformedService, settings: Settings) -> bool:
    """Return whether this stack serves `service`."""
    if service.key.kind in OF_INGRESSES or is_internal(service):
        return True  # checked when Ingresses were bound, and internal ones selected
    return implements(service, settings.classes) and selects(service, settings.namespaces, settings.selector)


def is_internal(service: Service | MalformedService) -> bool:
    """Return whether `service` is of another type than LoadBalancer: nothing is written to its cluster."""
    return isinstance(service, Service) and service.type is not ServiceType.LOAD_BALANCER


def with_internal(snapshot: Snapshot, settings: Settings) -> Snapshot:
    """Return the snapshot with those Services of other types among its Services that the stack selects."""
    selected = tuple(service for service in snapshot.internal if _selects_internal(service, settings.services))
    return replace(snapshot, services=(*snapshot.services, *selected)) if selected else snapshot


def _selects_internal(service: Service, wanted: OtherServices) -> bool:
    return service.type in wanted.types and selects(service, wanted.namespaces, wanted.selector)


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
