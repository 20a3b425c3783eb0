"""The Services that a stack serves: of its classes, and selected by it. Others are never changed. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from locallb.config.settings import Classes, Settings
from locallb.model.identities import OF_INGRESSES, ObjectKind
from locallb.model.objects import MalformedService, Service


def is_ours(service: Service | MalformedService, settings: Settings) -> bool:
    """Return whether this stack serves `service`, which is of type LoadBalancer, as all of them are."""
    if service.key.kind in OF_INGRESSES:
        return True  # checked for each Ingress when they were bound
    return implements(service, settings.classes) and selects(service, settings.namespaces, settings.selector)


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
