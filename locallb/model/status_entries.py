"""Status entries, conditions and events for a Service of a live cluster, with the fields of the Kubernetes API.

The provider's schema has the same types. Not here: when they are written (`kubernetes.service_status`,
`kubernetes.events`), and how they become a patch (`kubernetes.status_patch`).
"""

from __future__ import annotations

from typing import NamedTuple

from msgspec import Struct


class IngressPort(Struct, frozen=True):
    """A port of an ingress entry (core/v1 PortStatus)."""

    port: int
    protocol: str
    error: str = ""
    """The reason that it isn't served; empty while it is."""


class EntryName(NamedTuple):
    """The name of an ingress entry."""

    hostname: str = ""
    """A name of the load balancer; empty if it has none, or must not be published."""


NAMELESS = EntryName()


class Ingress(Struct, frozen=True):
    """An address in a Service's status (core/v1 LoadBalancerIngress)."""

    ip: str
    mode: str
    """`Proxy`: kube-proxy leaves the address alone."""
    ports: tuple[IngressPort, ...]
    """Every port of the Service."""
    named: EntryName = NAMELESS


class Condition(Struct, frozen=True):
    """A condition in a Service's status that isn't dated yet."""

    type: str
    """With our own prefix."""
    status: str
    """`True`, `False` or `Unknown`."""
    reason: str
    message: str


class Event(Struct, frozen=True, order=True):
    """An event of events.k8s.io/v1 that isn't dated yet."""

    type: str
    """`Normal` or `Warning`."""
    reason: str
    note: str
