"""Desired resources as data: type tokens, references between resources, and groups of one root each.

The type tokens are a promise: state files of every version name types by them. Not here: the resources of a plan
(`desired`), their effect (`provider`), and passing them to Pulumi (the package `locallb.components`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from locallb.model.fields import texts_of
from locallb.model.identities import Digest

ADDRESS = "locallb:index:LoopbackAddress"
PORTS = "locallb:index:LoopbackPorts"
ADDRESS_CLAIMS = frozenset({ADDRESS, PORTS})
"""Types of resources with a claim in the ledger."""
CERTIFICATE = "locallb:index:LocalCertificate"
SERVED_CERTIFICATE = "locallb:index:ServedCertificate"
CONFIG = "locallb:index:ProxyConfig"
PROCESS = "locallb:index:EnvoyProcess"
SERVICE_CONFIG = "locallb:index:ServiceConfig"
POD_ROUTES = "locallb:index:PodRoutes"
REACHABLE = "locallb:index:Reachable"
SERVICE_CLAIM = "locallb:index:ServiceClaim"
SERVICE_STATUS = "locallb:index:ServiceStatus"
SERVICE_EVENTS = "locallb:index:ServiceEvents"
GATEWAY_STATUS = "locallb:index:GatewayStatus"
DNS_NAME = "locallb:index:DnsName"
STUB_ZONES = "locallb:index:StubZones"
OWN_CLASS = "locallb:index:OwnClass"
INITIALIZED_NODE = "locallb:index:InitializedNode"
RELAY = "locallb:index:ApiRelay"
ELSEWHERE = frozenset(
    {SERVICE_CLAIM, SERVICE_STATUS, SERVICE_EVENTS, GATEWAY_STATUS, DNS_NAME, STUB_ZONES, OWN_CLASS, INITIALIZED_NODE}
)
"""Types of what is in clusters and name servers: a failure tells nothing of this host."""
BALANCER = "locallb:index:LoadBalancer"
COMPONENT = "locallb:index:LoadBalancers"
"""What programs declare: it plans."""
PROXY = "locallb:index:Proxy"
CLUSTER_ROUTES = "locallb:index:ClusterRoutes"
GATEWAY_OBJECT = "locallb:index:GatewayObject"
CLUSTER_ZONES = "locallb:index:ClusterZones"
CLUSTER_CLASS = "locallb:index:ClusterClass"
CLUSTER_RELAY = "locallb:index:ClusterRelay"
CLUSTER_NODE = "locallb:index:ClusterNode"
ROOTS = (BALANCER, PROXY, CLUSTER_ROUTES, GATEWAY_OBJECT, CLUSTER_ZONES, CLUSTER_CLASS, CLUSTER_RELAY, CLUSTER_NODE)
"""Resources directly below the stack: each is updated by itself, with its children."""
CONTAINER = "docker:index/container:Container"
PODMAN_CONTAINER = "locallb:index:PodmanContainer"


def shown_items(value: object, separator: str = ", ") -> list[str]:
    """Read what a load balancer shows as one text; a list, if an earlier version wrote it."""
    return value.split(separator) if isinstance(value, str) and value else texts_of(value)


class Resource(Protocol):
    """The needed fields of a resource in a state."""

    @property
    def type(self) -> str:
        """Its type token."""

    @property
    def inputs(self) -> Mapping[str, object]:
        """Its inputs as the state has them."""

    @property
    def outputs(self) -> Mapping[str, object]:
        """Its outputs as the state has them."""


_CANONICAL = msgspec.json.Encoder(order="sorted")


class ResourceKey(NamedTuple):
    """Key of a resource in a stack: its type token and its name."""

    type: str
    name: str


class Ref(Struct, frozen=True, array_like=True):
    """Outputs of another resource, in the place of an input."""

    key: ResourceKey
    fields: tuple[str, ...]
    template: str = ""
    """A text with a pair of braces for each field; empty for the unchanged value of the only field."""

    def value(self, *outputs: object) -> object:
        """Return the input, given the outputs of the other resource. Numbers come as floats from an engine."""
        if not self.template:
            return outputs[0]
        return self.template.format(
            *(int(output) if isinstance(output, float) and output.is_integer() else output for output in outputs)
        )


class OptionalRef(Ref, frozen=True, array_like=True):
    """Refers to one output that may be absent, which counts as an empty text."""

    def value(self, *outputs: object) -> object:
        return "" if outputs[0] is None else outputs[0]


class DesiredResource(Struct, frozen=True):
    """One resource: a component, which has outputs that are registered, or a custom resource of a provider."""

    key: ResourceKey
    inputs: Mapping[str, object]
    """JSON-like values; a Ref may replace one at any depth."""
    parent: ResourceKey | None = None
    """None for a root, which is a child of the stack."""
    needs: tuple[ResourceKey, ...] = ()
    """Resources that must exist before, in addition to references in its inputs."""
    follows: tuple[ResourceKey, ...] = ()
    """As `needs`, but only if they are being applied or exist already: no part of the digest."""
    outputs: Mapping[str, object] | None = None
    """Outputs of a component, with values as inputs have them; None for a custom resource."""

    @property
    def references(self) -> Iterator[Ref]:
        """Return the Refs among its inputs and outputs."""
        yield from references(self.inputs)
        yield from references(self.outputs)

    @property
    def requirements(self) -> Iterator[ResourceKey]:
        """Return the resources that must exist before it."""
        if self.parent:
            yield self.parent
        yield from self.needs
        yield from (ref.key for ref in references(self.inputs))


def references(value: object) -> Iterator[Ref]:
    """Return the Refs in a value, at any depth."""
    if isinstance(value, Ref):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from references(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from references(item)


class Group(Struct, frozen=True):
    """A root with all its descendants, which are updated together."""

    members: tuple[DesiredResource, ...]
    """The root first."""
    digest: Digest
    """Equal digests: there is nothing to do. The root has it among its outputs, which a preview doesn't show."""

    @property
    def root(self) -> ResourceKey:
        return self.members[0].key


def group_of(
    root: DesiredResource,
    members: Sequence[DesiredResource],
    within: tuple[Digest, ...] = (),
) -> Group:
    """Make a group; `within` are the digests of groups with changes that count as its own.

    The digest is of canonical JSON of the values, never of the names of our types: renaming one updates nothing.
    """
    described = [(each.key, each.inputs, each.parent, each.needs, each.outputs) for each in (root, *members)]
    digest = Digest(hashlib.sha256(_CANONICAL.encode([described, within])).hexdigest())
    marked = replace(root, outputs={**(root.outputs or {}), "digest": digest})
    return Group((marked, *members), digest)
