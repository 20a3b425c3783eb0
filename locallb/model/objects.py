"""Kubernetes objects as frozen types, which every source produces and the planner takes.

Only what local-lb uses of the Kubernetes API is here, under the API's own names. Other inputs of a plan are in
`model.snapshot`, the planner's decisions in `planning.planned`, Envoy's configuration in `envoy`, texts for the user in
`planning.service_rows`: these types never mix.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from types import MappingProxyType

from msgspec import Struct, field

from locallb.model.faults import NO_ORDER, Fault, Order
from locallb.model.identities import (
    KEY_PREFIX,
    ROUTED,
    ClusterName,
    Family,
    IPAddress,
    IPNetwork,
    NodeName,
    ObjectKey,
    Protocol,
    SharingKey,
    Uid,
)
from locallb.model.reasons import Problem

EMPTY: Mapping[str, str] = MappingProxyType({})
ADDRESSES_ANNOTATION = f"{KEY_PREFIX}addresses"
"""Requested addresses of a Service or an Ingress, comma-separated, at most one per family: `127.77.0.5,fd00::5`."""

PORTS_ANNOTATION = f"{KEY_PREFIX}mapped-ports"
"""Our annotation with the ports of 127.0.0.1 by which a Service is reached: the API has no field for that."""


class FamilyPolicy(StrEnum):
    """spec.ipFamilyPolicy."""

    SINGLE = "SingleStack"
    PREFER_DUAL = "PreferDualStack"
    REQUIRE_DUAL = "RequireDualStack"


class BackendChoice(StrEnum):
    """Where connections go first: to pods or to NodePorts."""

    AUTO = "auto"
    """To pods if this host certainly has a route to all of a port's endpoints."""
    PODS = "pods"
    """To pods if EndpointSlices are known, regardless of routes."""
    NODE_PORTS = "nodePorts"
    """To pods only where there is no NodePort."""


class ProxyProtocol(StrEnum):
    """The version of the PROXY protocol by which a backend learns the client's address."""

    V1 = "v1"
    V2 = "v2"


class TrafficPolicy(StrEnum):
    """spec.externalTrafficPolicy."""

    CLUSTER = "Cluster"
    LOCAL = "Local"


class ServiceType(StrEnum):
    """spec.type, as far as such a Service can be served."""

    CLUSTER_IP = "ClusterIP"
    NODE_PORT = "NodePort"
    LOAD_BALANCER = "LoadBalancer"


class ServicePort(Struct, frozen=True):
    """An entry of spec.ports. `node_port` is 0 where none is allocated; `target_port` a number or a port's name."""

    port: int
    protocol: Protocol = Protocol.TCP
    name: str = ""
    node_port: int = 0
    target_port: int | str | None = None
    mapped: int = 0
    """The port for clients on a loopback address that all Services share; 0 if none is planned."""
    app_protocol: str = ""
    """appProtocol: the protocol of links to it; empty if absent, or not a text."""

    @property
    def number(self) -> int:
        """The number that clients connect to: the mapped one, or its own."""
        return self.mapped or self.port

    @property
    def label(self) -> str:
        """Its text for users: `80/TCP`, or `80/TCP=18080` where clients find it elsewhere."""
        return f"{self}={self.mapped}" if self.mapped not in {0, self.port} else str(self)

    def __str__(self) -> str:
        return f"{self.port}/{self.protocol}"


class IngressEntry(Struct, frozen=True):
    """An entry of status.loadBalancer.ingress that has an address."""

    address: IPAddress


class Service(Struct, frozen=True):
    """A Service, as far as a load balancer cares (core/v1 Service)."""

    key: ObjectKey
    ports: tuple[ServicePort, ...]
    uid: Uid = Uid("")
    created: str = ""
    """metadata.creationTimestamp as written (RFC 3339, so it sorts); empty if absent."""
    families: tuple[Family, ...] = (Family.IPV4,)
    family_policy: FamilyPolicy = FamilyPolicy.SINGLE
    requested: tuple[IPAddress, ...] = ()
    """Addresses asked for by spec.loadBalancerIP or the annotation `local-lb.dev/addresses`, at most one per family."""
    sharing_key: SharingKey = SharingKey("")
    """The annotation `local-lb.dev/sharing-key`: Services of one key may have one address, with ports of their own."""
    backends: BackendChoice | None = None
    """The annotation `local-lb.dev/backends`; None for what the stack says."""
    fault: Fault | None = None
    """The annotation `local-lb.dev/fault`; None without a fault."""
    ordered: Order = NO_ORDER
    """Overrides by commands."""
    name_in_status: bool | None = None
    """The annotation `local-lb.dev/name-in-status`; None for what the stack says."""
    proxy_protocol: ProxyProtocol | None = None
    """The annotation `local-lb.dev/proxy-protocol`; None where backends get nothing but the client's bytes."""
    source_ranges: tuple[IPNetwork, ...] = ()
    """Clients allowed; empty means all."""
    client_ip_affinity: bool = False
    traffic_policy: TrafficPolicy = TrafficPolicy.CLUSTER
    health_check_node_port: int = 0
    load_balancer_class: str | None = None
    deleting: bool = False
    labels: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    annotations: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    ingress: tuple[IngressEntry, ...] = ()
    hostnames: tuple[str, ...] = ()
    """Entries of status.loadBalancer.ingress that have a name only."""
    was_served: bool = False
    """By our condition in its status it once got an address of local-lb, whatever its current state."""
    type: ServiceType = ServiceType.LOAD_BALANCER
    """Of other types than this, nothing is written to the cluster."""
    headless: bool = False
    """It has no cluster IP: in its cluster its name stands for its pods, each of which may have one of its own."""

    @property
    def failing(self) -> Fault | None:
        """The fault that is injected into its connections or requests, from an annotation or an order."""
        fault = self.ordered.fault or self.fault
        if fault is None:
            return None
        return fault.of_requests if self.key.kind in ROUTED else fault.of_connections

    @property
    def ends(self) -> tuple[str, ...]:
        """Return the ends of its overrides that expire."""
        return tuple(order.until for order in (self.failing, self.ordered.down) if order)


class MalformedService(Struct, frozen=True):
    """A Service that can't be understood, or that Envoy refuses: it becomes a rejection, never an exception."""

    key: ObjectKey
    problem: Problem
    uid: Uid = Uid("")
    load_balancer_class: str | None = None
    deleting: bool = False
    labels: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    type: ServiceType = ServiceType.LOAD_BALANCER
    """As a `Service` has it."""


class Node(Struct, frozen=True):
    """A Node: where NodePorts answer (core/v1 Node). `addresses` are its InternalIPs."""

    cluster: ClusterName
    name: NodeName
    addresses: tuple[IPAddress, ...] = ()
    labels: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    taints: tuple[str, ...] = ()
    """Keys of spec.taints."""
    deleting: bool = False
    pod_cidrs: tuple[IPNetwork, ...] = ()
    """Where its pods have their addresses: spec.podCIDRs, or the ranges that the CNI keeps in objects of its own."""
    odd: tuple[str, ...] = ()
    """Sentences about its unreadable parts, which are left out."""
    uid: str = ""
    provider: str = ""
    """spec.providerID."""
    hostname: str = ""
    """Its address of type Hostname."""
    provided: tuple[IPAddress, ...] = ()
    """The InternalIPs that its kubelet was started with, where it says that."""


def nodes_by_cluster(nodes: Iterable[Node]) -> Mapping[ClusterName, Sequence[Node]]:
    """Sort Nodes by their clusters, each in the given order."""
    by_cluster: dict[ClusterName, list[Node]] = {}
    for node in nodes:
        by_cluster.setdefault(node.cluster, []).append(node)
    return by_cluster


class PodRanges(Struct, frozen=True):
    """Ranges that the CNI gave a Node's pods, by an object of its own."""

    node: NodeName
    networks: tuple[IPNetwork, ...]
    odd: tuple[str, ...] = ()


class EndpointPort(Struct, frozen=True):
    """An entry of an EndpointSlice's ports; `port` 0 where it has none."""

    port: int
    protocol: Protocol = Protocol.TCP
    name: str = ""


class Endpoint(Struct, frozen=True):
    """An entry of an EndpointSlice's endpoints. `ready` counts an unknown condition as ready, as the API says."""

    addresses: tuple[IPAddress, ...]
    ready: bool = True
    node: NodeName | None = None
    draining: bool = False
    """Terminating and still serving: of use as long as nothing is ready (KEP-1669)."""
    pod: str = ""
    """The name of the Pod that it is; empty for anything else."""
    hostname: str = ""
    """Its own name below that of a headless Service, as pods of a StatefulSet have it."""


class EndpointSlice(Struct, frozen=True):
    """An EndpointSlice of a Service (discovery.k8s.io/v1, label kubernetes.io/service-name)."""

    service: ObjectKey
    family: Family
    ports: tuple[EndpointPort, ...] = ()
    endpoints: tuple[Endpoint, ...] = ()
    managed: bool = False
    """Kubernetes' own controller writes it, and soon what follows from a changed Service."""


class Via(StrEnum):
    """Where the connections of a port go first."""

    PODS = "pods"
    NODE_PORTS = "nodePorts"
    API = "api"
    """To pods, through the API server of their cluster."""
    BOTH = "both"
    """Its families differ."""


class Discovery(StrEnum):
    """Discovery of a proxy's endpoints: EDS files (one inotify instance a cluster), or inside the CDS file (none)."""

    EDS = "eds"
    STATIC = "static"
