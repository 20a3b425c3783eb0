"""Status entries, conditions and events for a Service of a live cluster, with the fields of the Kubernetes API.

The provider's schema has the same types. Not here: when they are written (`kubernetes.service_status`,
`kubernetes.events`), and how they become a patch (`kubernetes.status_patch`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class IngressPort:
    """A port of an ingress entry (core/v1 PortStatus)."""

    port: int
    protocol: str
    error: str = ""
    """Why it isn't served; empty while it is."""


class EntryName(NamedTuple):
    """The name of an ingress entry."""

    hostname: str = ""
    """A name of the load balancer; empty where it shall not be told, or has none."""


NAMELESS = EntryName()


@dataclass(frozen=True, slots=True)
class Ingress:
    """An address in a Service's status (core/v1 LoadBalancerIngress)."""

    ip: str
    mode: str
    """`Proxy`: kube-proxy leaves the address alone."""
    ports: tuple[IngressPort, ...]
    """Every port of the Service."""
    named: EntryName = NAMELESS


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition in a Service's status that isn't dated yet."""

    type: str
    """With our own prefix."""
    status: str
    """`True` or `False`."""
    reason: str
    message: str


@dataclass(frozen=True, slots=True, order=True)
class Event:
    """An event of events.k8s.io/v1 that isn't dated yet."""

    type: str
    """`Normal` or `Warning`."""
    reason: str
    note: str
