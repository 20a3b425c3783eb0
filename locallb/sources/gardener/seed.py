"""The API of a seed of Gardener: its shoots, and how the API of each is reached, by Secrets of selected shoots only.

The parsing functions are pure. Not here: use of the answers (`source`).
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from ipaddress import ip_address
from types import MappingProxyType
from typing import TypeAlias
from urllib.parse import urlsplit

from msgspec import Struct

from locallb.kubernetes.answers import Object, listed
from locallb.kubernetes.api.client import NAMESPACE
from locallb.kubernetes.api.connected import Connected, ServedKind
from locallb.kubernetes.api.servers import KubeError, RefusedError
from locallb.model import http_checks
from locallb.model.fields import LABEL, JsonObject, at, text_of
from locallb.model.identities import ClusterName, ContextName, IPAddress, in_place
from locallb.model.routes import PodRoute
from locallb.sources.kept_access import LARGEST, GeneratedAccess, ServerAddress, admitted
from locallb.sources.kubernetes.entry import node_routes
from locallb.sources.kubernetes.nodes import MachinesApi

LABELS = {"gardener.cloud/role": "shoot", "shoot.gardener.cloud/provider": "local"}
"""Labels of control plane namespaces of shoots with Nodes on this host."""
TOKEN, ADMIN = "shoot-access-local-lb", "gardener"
"""Secrets: a token requested for local-lb, with its own rights; otherwise the administrator's."""
_GENERIC = "generic-token-kubeconfig"
_GENERIC_NAME = "generic-token-kubeconfig.secret.gardener.cloud/name"
_VISIBLE = re.compile(r"[!-~]+")
Secret = JsonObject
Records: TypeAlias = Mapping[str, IPAddress]
"""Addresses of names, as the DNSRecords of one shoot have them."""


class Shoot(Struct, frozen=True):
    """A shoot of the provider `local` with enough data in its Cluster to reach it."""

    name: ClusterName
    """Its technical ID, which is the namespace of its control plane."""
    api: str = ""
    """The name of its API from outside; empty where it has none."""
    generic: str = _GENERIC
    """The Secret with the kubeconfig that lacks a token."""
    silent: str = ""
    """The reason that its API needn't answer."""


def parse_shoot(document: JsonObject) -> Shoot | None:
    """Read a Cluster; None where it isn't, or not yet, a shoot that is reached from this seed."""
    name, annotations = text_at(document, "metadata", "name"), at(document, "metadata", "annotations")
    shoot = at(document, "spec", "shoot")
    is_shoot = LABEL.fullmatch(name) and text_at(shoot, "status", "technicalID") == name
    if not is_shoot or text_at(shoot, "spec", "provider", "type") != "local":
        return None
    generic, domain = _host(text_at(annotations, _GENERIC_NAME)) or _GENERIC, text_at(shoot, "spec", "dns", "domain")
    return Shoot(ClusterName(name), _host(f"api.{domain}"), generic, _silence(shoot))


def way(
    shoot: Shoot, secret: Callable[[str], Secret | None], records: Records = MappingProxyType({})
) -> GeneratedAccess:
    """Find out how a shoot's API is reached, by the Secrets of its namespace; nothing where it isn't up yet.

    Where `records` say to which address its name leads, that is dialled: this host needn't resolve the name.
    """
    requested, context = secret(TOKEN), ContextName(shoot.name)
    if requested is None:
        return admitted(context, _data(secret(ADMIN), "kubeconfig"), lambda server: _reach(server, records))
    token = (_data(requested, "token") or b"").decode("ascii", "replace").strip()
    if not (shoot.api and _VISIBLE.fullmatch(token)):
        return GeneratedAccess()
    reached = _reach(f"https://{shoot.api}", records)
    return admitted(context, _data(secret(shoot.generic), "kubeconfig"), lambda _inside: reached, token)


def read_records(documents: Iterable[JsonObject]) -> Mapping[str, Records]:
    """Return the addresses of names in a seed's DNSRecords, by namespace; the first value of each counts.

    If a name has addresses of both families, IPv4 counts.
    """
    records: dict[str, dict[str, IPAddress]] = {}
    for document in documents:
        name, values = _host(text_at(document, "spec", "name")), at(document, "spec", "values")
        address = _address(values[0]) if isinstance(values, list) and values else None
        if name and address:
            existing = records.setdefault(text_at(document, "metadata", "namespace"), {})
            existing[name] = min(address, existing.get(name, address), key=lambda given: (given.version, int(given)))
    return records


def _address(text: object) -> IPAddress | None:
    with suppress(ValueError):
        address = ip_address(text) if isinstance(text, str) and "%" not in text else None
        return address if address and not address.is_unspecified and not address.is_multicast else None
    return None


def _reach(server: str, records: Records) -> ServerAddress:
    """Return how a server is reached: at the address of its name, where that is known. Raises ValueError."""
    parts = urlsplit(server)
    name = _host(parts.hostname or "")
    if parts.scheme != "https" or name not in records:
        return ServerAddress(server)
    address, port = records[name], f":{parts.port}" if parts.port else ""
    return ServerAddress(f"https://{in_place(address)}{port}", name)


def _silence(shoot: object) -> str:
    if at(shoot, "metadata", "deletionTimestamp"):
        return "is being deleted"
    wanted, done = at(shoot, "spec", "hibernation", "enabled"), at(shoot, "status", "hibernated")
    return "is hibernated" if wanted is True or done is True else ""


def _host(text: str) -> str:
    """Return a valid host of a URL; empty if it is invalid."""
    with suppress(ValueError):
        return http_checks.hostname(text, wildcard=False)
    return ""


def _data(secret: Secret | None, key: str) -> bytes | None:
    """Return what a Secret has; None if it hasn't, or too much."""
    text = text_at(secret, "data", key)
    try:
        return base64.b64decode(text, validate=True) if 0 < len(text) <= 2 * LARGEST else None
    except (binascii.Error, ValueError):
        return None


def text_at(value: object, *keys: str) -> str:
    """Return a text at the end of the keys; empty where there is none."""
    return text_of(at(value, *keys))


_GROUP = "extensions.gardener.cloud/v1alpha1"
_CLUSTER = ServedKind(_GROUP, "Cluster", "clusters")
_RECORD = ServedKind(_GROUP, "DNSRecord", "dnsrecords")
_PAGE = 100
_SYSTEM = "kube-system"


class SeedContents(Struct, frozen=True):
    """Contents of a seed."""

    identity: str
    """Identity of the seed, independent of its name and address."""
    present: frozenset[str]
    """Technical IDs of shoots of which it has anything."""
    shoots: Mapping[str, Shoot]
    accesses: Mapping[str, GeneratedAccess]
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
        accesses = {
            name: self._way(shoot, records.get(name, {})) for name, shoot in parsed.items() if is_requested(name)
        }
        present = control_planes | {str(document["metadata"]["name"]) for document in clusters}
        return SeedContents(identity, frozenset(present), parsed, accesses, self._node_routes())

    def _identity(self) -> str:
        """Return the uid of kube-system, which stays as long as a cluster does. Raises KubeError."""
        subject = f"Namespace {_SYSTEM}"

        def ask(api: Connected) -> str:
            return str(listed(api.get(NAMESPACE.path(name=_SYSTEM)), NAMESPACE.api, NAMESPACE.name)["metadata"]["uid"])

        return self._call(subject, ask) or ""

    def _control_planes(self) -> set[str]:
        """Return the namespaces of shoots; one that hosts itself is the seed. Raises KubeError."""
        namespaces = self._list(NAMESPACE, labels=LABELS, page=_PAGE)
        return {str(document["metadata"]["name"]) for document in namespaces} - {_SYSTEM}

    def _clusters(self) -> list[Object]:
        return self._list(_CLUSTER, page=_PAGE)

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
            return self._list(_RECORD, page=_PAGE)
        except KubeError as error:
            if not isinstance(error, RefusedError):
                raise
            return []

    def _way(self, shoot: Shoot, records: Records) -> GeneratedAccess:
        return way(shoot, lambda name: self.secret(shoot.name, name), records)
