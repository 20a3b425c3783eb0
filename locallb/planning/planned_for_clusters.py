"""The parts of a plan that are for a whole cluster, whatever its Services: routes to pods, and stub zones."""

from __future__ import annotations

from typing import ClassVar

from msgspec import Struct

from locallb.model.identities import ClusterName, Home, ObjectKey, Owner, ProxyName
from locallb.model.naming import proxy_owner
from locallb.model.network.routes import PodRoute
from locallb.model.snapshot import Access

ROUTES, ZONES = "pod-routes", "dns-zones"
"""The second part of the names of what the stack has for a cluster; names of Services have three."""


class _ForCluster(Struct, frozen=True):
    cluster: ClusterName
    home: Home
    part: ClassVar[str]
    """The second part of its name."""

    @property
    def owner(self) -> Owner:
        """Its key: the stack's, with a name of its own."""
        return proxy_owner(self.home, ProxyName(f"{self.cluster}/{self.part}"))

    @property
    def key(self) -> ObjectKey:
        """Its key among what the stack has."""
        return self.owner.service


class PlannedRoutes(_ForCluster, frozen=True):
    """The routes to the pods of a cluster in this host's table."""

    routes: tuple[PodRoute, ...]
    part: ClassVar[str] = ROUTES


class PlannedZones(_ForCluster, frozen=True):
    """The zones that the pods of a running cluster are to resolve."""

    access: Access
    zones: tuple[str, ...]
    """Each with its server, as `dns.stubs` writes it."""
    part: ClassVar[str] = ZONES
