"""Which Services are ours: those of a class that this stack implements. Services of others are never touched."""

from __future__ import annotations

from locallb.planning.model import MalformedService, Service
from locallb.planning.settings import Classes


def is_ours(service: Service | MalformedService, classes: Classes) -> bool:
    """Tell whether this stack gives `service` its addresses. `service` is of type LoadBalancer, as all of them are."""
    if service.load_balancer_class is None:
        return classes.default
    return service.load_balancer_class in classes.names
