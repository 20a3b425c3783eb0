"""Requests to a seed's API: its shoots, and the Secrets of selected shoots only.

Not here: what the answers mean (`shoots`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from lightkube import Client
from lightkube.generic_resource import create_global_resource, create_namespaced_resource
from msgspec import Struct

from locallb.kubernetes.access.errors import KubeError, RefusedError
from locallb.kubernetes.answers import Object, listed
from locallb.kubernetes.api.object_types import NAMESPACE, prepared
from locallb.model.network.routes import PodRoute
from locallb.sources.gardener.shoots import LABELS, Records, Shoot, parse_shoot, read_records, way
from locallb.sources.kept_access import GeneratedAccess
from locallb.sources.kubernetes.machine_pods import node_routes
from locallb.sources.kubernetes.machines import MachinesApi

_GROUP, _VERSION = "extensions.gardener.cloud", "v1alpha1"
_CLUSTER = prepared(create_global_resource(_GROUP, _VERSION, "Cluster", "clusters"))
_RECORD = prepared(create_namespaced_resource(_GROUP, _VERSION, "DNSRecord", "dnsrecords"))
_PAGE = 100
_SYSTEM = "kube-system"


class SeedContents(Struct, frozen=True):
    """Contents of a seed."""

    identity: str
    """Identity of the seed, independent of its name and address."""
    present: frozenset[str]
    """Technical IDs of shoots of which it has anything."""
    shoots: Mapping[str, Shoot]
    pod_paths: Mapping[str, GeneratedAccess]
    """Access to the requested shoots."""
    machines: Mapping[str, tuple[PodRoute, ...]] | None = None
    """The ways to their Nodes; None where they may not be read."""


class Seed(MachinesApi):
    """The API of a seed."""

    rights = "docs/gardener.md#rights"

    def inspect(self, is_requested: Callable[[str], bool]) -> SeedContents:
        """Read its shoots, and the access to each shoot that `is_requested` selects. Raises KubeError."""
        identity = self._identity()
        control_planes = self._control_planes()
        clusters = self._clusters()
        parsed = {
            str(shoot.name): shoot for shoot in map(parse_shoot, clusters) if shoot and shoot.name in control_planes
        }
        records = read_records(self._records())
        pod_paths = {
            name: self._way(shoot, records.get(name, {})) for name, shoot in parsed.items() if is_requested(name)
        }
        present = control_planes | {str(document["metadata"]["name"]) for document in clusters}
        return SeedContents(identity, frozenset(present), parsed, pod_paths, self._node_routes())

    def _identity(self) -> str:
        """Return the uid of kube-system, which stays as long as a cluster does. Raises KubeError."""
        subject = f"Namespace {_SYSTEM}"

        def ask(client: Client) -> str:
            return str(listed(client.get(NAMESPACE, _SYSTEM), "v1", "Namespace")["metadata"]["uid"])

        return self._call(subject, ask) or ""

    def _control_planes(self) -> set[str]:
        """Return the namespaces of shoots; one that hosts itself is the seed. Raises KubeError."""
        labels: dict[str, Any] = dict(LABELS)
        namespaces = self._list(
            "v1", "Namespace", lambda client: client.list(NAMESPACE, chunk_size=_PAGE, labels=labels)
        )
        return {str(document["metadata"]["name"]) for document in namespaces} - {_SYSTEM}

    def _clusters(self) -> list[Object]:
        return self._list(f"{_GROUP}/{_VERSION}", "Cluster", lambda client: client.list(_CLUSTER, chunk_size=_PAGE))

    def _node_routes(self) -> Mapping[str, tuple[PodRoute, ...]] | None:
        """Return the ways to the Nodes of shoots; None where this user may not ask. Raises KubeError."""
        try:
            return node_routes(self.machines())
        except KubeError as error:
            if not isinstance(error, RefusedError):
                raise
            return None

    def _records(self) -> list[Object]:
        """Return the DNS records; empty without the right to read them, or without such records. Raises KubeError.

        Names are then resolved by this host.
        """
        try:
            return self._list(
                f"{_GROUP}/{_VERSION}",
                "DNSRecord",
                lambda client: client.list(_RECORD, namespace="*", chunk_size=_PAGE),
            )
        except KubeError as error:
            if not isinstance(error, RefusedError):
                raise
            return []

    def _way(self, shoot: Shoot, records: Records) -> GeneratedAccess:
        return way(shoot, lambda name: self.secret(shoot.name, name), records)
