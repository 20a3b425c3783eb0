"""All inputs of a plan, read at one moment: Kubernetes objects, held addresses, facts of the host.

Frozen data, as sources produce it. Not here: the Kubernetes objects themselves (`objects`), and reading inputs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

from msgspec import Struct, field

from locallb.model.faults import Order
from locallb.model.gateway_of_cluster import ObjectOfCluster
from locallb.model.identities import (
    ClusterName,
    ContextName,
    Family,
    Fingerprint,
    Home,
    IPAddress,
    IPNetwork,
    ObjectKey,
    ObjectKind,
    Owner,
    Protocol,
    ProxyId,
    ProxyName,
)
from locallb.model.objects import Discovery, EndpointSlice, MalformedService, Node, Service
from locallb.model.own_classes import ClassFacts, HeldClass
from locallb.model.own_nodes import InitializedNode
from locallb.model.relays import ForwardingFacts
from locallb.model.routes import Diversion, HostAddresses, HostRoute, PodRoute
from locallb.model.serving import HeapBounds, ProxyTraits
from locallb.patterns import pattern

LAST_PORT = 65535
_MAPPED = pattern(r"(\d{1,5})/(TCP|UDP|SCTP)=(\d{1,5})", re.ASCII)
_NO_OVERRIDES: Mapping[ObjectKey, Order] = MappingProxyType({})
_NO_ACCESS: Mapping[ClusterName, Access] = MappingProxyType({})
_NO_ROUTES: Mapping[ClusterName, tuple[PodRoute, ...]] = MappingProxyType({})
_NO_HEAPS: Mapping[ProxyName, HeapBounds] = MappingProxyType({})
_NO_CLASSES: Mapping[ClusterName, Mapping[ObjectKind, ClassFacts]] = MappingProxyType({})
_NO_HEALTH_PORTS: Mapping[ClusterName, frozenset[Family]] = MappingProxyType({})
_NO_FORWARDING: Mapping[ClusterName, ForwardingFacts] = MappingProxyType({})


class Access(Struct, frozen=True):
    """Access to a live cluster's API: by reference, never with a credential in it."""

    kubeconfig: str
    """Path of the kubeconfig, absolute."""
    context: ContextName


PortKey: TypeAlias = tuple[int, Protocol]
"""A port of an address."""


class MappedPort(NamedTuple):
    """A port of a Service, and the port of a loopback address at which clients find it."""

    port: int
    protocol: Protocol
    number: int
    """At the address."""

    @property
    def place(self) -> PortKey:
        """Its exclusive part of the address."""
        return self.number, self.protocol

    def __str__(self) -> str:
        return f"{self.port}/{self.protocol}={self.number}"

    @classmethod
    def parse(cls, text: str) -> MappedPort:
        """Return the one that prints as `text`. Raises ValueError."""
        if not (match := _MAPPED.fullmatch(text)):
            raise ValueError(f"{text!r} isn't <port>/<protocol>=<number>")
        port, protocol, number = int(match[1]), Protocol(match[2]), int(match[3])
        if not (0 < port <= LAST_PORT and 0 < number <= LAST_PORT):
            raise ValueError(f"{text!r} has a number that no port has")
        return cls(port, protocol, number)


def places_of(ports: Iterable[MappedPort]) -> frozenset[PortKey]:
    """Return where clients find ports that are mapped."""
    return frozenset(port.place for port in ports)


class Claim(Struct, frozen=True):
    """An address that is held, and by whom: an entry of the ledger, or of this stack's own state."""

    address: IPAddress
    owner: Owner
    ports: tuple[MappedPort, ...] = ()
    """Claimed ports of a shared address; empty if the whole address is claimed."""
    problem: str = ""
    """The reason that its owner is unknown, and the remedy; empty if it is known."""
    unread: bool = False
    """It can't be read just now, and may say anything."""

    @property
    def places(self) -> frozenset[PortKey]:
        """Return its exclusive part of the address; empty for all of it."""
        return places_of(self.ports)

    @property
    def name(self) -> str:
        """The id of the resource that has it."""
        return f"{self.address}/{self.owner.service}" if self.ports else str(self.address)

    @property
    def order(self) -> tuple[int, int, Owner, str]:
        return self.address.version, int(self.address), self.owner, self.problem


class HeldProxy(Struct, frozen=True):
    """Properties of a Service's running own proxy that must not change."""

    service: ObjectKey
    discovery: Discovery | None
    """None where it serves nothing yet."""
    watched_files: int = 1
    """Number of files it watches besides listeners and clusters if it uses EDS: endpoints, routes, secrets."""
    traits: ProxyTraits = ProxyTraits()


class HeldProxyAssignment(NamedTuple):
    """The stack proxy that serves a Service, by the proxy's name."""

    service: ObjectKey
    proxy: ProxyName
    patient: bool | None = None
    """As `serving.ProxyTraits` has it."""
    whole: bool = False
    """It serves no other Service: it is among their own proxies as well."""


class Socket(Struct, frozen=True):
    """A socket that isn't ours and keeps (address, port) from being bound; a wildcard's address is 0.0.0.0 or ::."""

    address: IPAddress
    port: int
    protocol: Protocol
    process: str = ""
    """`name (pid)` where it may be read."""
    foreign: bool = False
    """Another user's, or of a proxy of another state home: what it holds is in no ledger of this user."""
    alone: bool = False
    """It is foreign, and no process of this stack listens on its address."""


class Subnet(Struct, frozen=True):
    """A subnet of the Docker network on which ports are published: an entry of its IPAM configuration."""

    network: IPNetwork
    gateway: IPAddress | None = None
    handed_out: IPNetwork | None = None
    """IPRange: what Docker chooses from; None where it is the whole subnet."""
    claimed: frozenset[IPAddress] = frozenset()
    """Addresses of other owners' containers."""
    chosen: frozenset[ProxyId] = frozenset()
    """Proxies of this stack in containers with an address that Docker chose."""


class HostFacts(Struct, frozen=True):
    """Limits of this host. The defaults are of a host without limits, for tests and previews elsewhere."""

    unprivileged_port_start: int = 0
    """First port that we may bind: net.ipv4.ip_unprivileged_port_start, or 0 with CAP_NET_BIND_SERVICE."""
    watches: int = 1_000_000
    """Limit of inotify instances of all our proxies (fs.inotify.max_user_instances less the use of other processes)."""
    sockets: tuple[Socket, ...] = ()
    addresses: HostAddresses | None = None
    """Addresses of this host; None if no host is known: then every address counts as its own."""
    routed: tuple[IPNetwork, ...] | None = None
    """Networks to which this host has a route, except the default route; None if unknown."""
    routes: tuple[HostRoute, ...] = ()
    """Routes that the kernel reads for every packet, whatever their destination; empty if unknown."""
    diversions: tuple[Diversion, ...] = ()
    """Destinations that rules lead elsewhere than those routes."""
    envoy: str = ""
    """The version of Envoy that is installed."""
    user: int = 0
    """The number of this user; that of root where no host is known."""
    group: int = 0
    """The group of this user, through which a container uses a proxy's directory."""
    may_route: bool = True
    """This user may change routes, or Docker does it for them."""
    subnets: tuple[Subnet, ...] = ()
    """Subnets of the Docker network on which ports are published."""
    inside: tuple[IPNetwork, ...] = ()
    """Networks between this host and its own containers and virtual machines."""


class Place(Struct, frozen=True):
    """Where an object is written: a line of a file, and the lines of some of its fields."""

    file: str
    line: int
    fields: Mapping[str, int] = field(default_factory=dict)
    """By what they are about: ports such as `8080/TCP`, `sources`, `addresses`."""


class Contents(Struct, frozen=True):
    """Number of objects in one source, used or not."""

    cluster: ClusterName
    kinds: Mapping[str, int]
    """Objects by kind, Services by type as well; see `parsing.kinds_of`."""
    files: int | None = None
    """Files that were read; None for a running cluster."""


class LocalAuthority(Struct, frozen=True):
    """This user's own authority for certificates, as far as plans ask."""

    fingerprint: Fingerprint = Fingerprint("")
    domains: tuple[str, ...] = ()
    """Below which hosts lie that it may certify; none: anywhere."""
    day: int = 0
    """Days from 1970 to the moment of the snapshot."""


class Snapshot(Struct, frozen=True):
    """Everything that a plan is made from, read at one moment."""

    home: Home
    services: tuple[Service, ...] = ()
    malformed: tuple[MalformedService, ...] = ()
    nodes: tuple[Node, ...] = ()
    slices: tuple[EndpointSlice, ...] = ()
    claims: tuple[Claim, ...] = ()
    """The ledger: claims of every stack of this host, ours among them."""
    remembered: tuple[Claim, ...] = ()
    """Addresses in this stack's own state."""
    proxies: tuple[HeldProxy, ...] = ()
    stack_proxies: tuple[ProxyName, ...] = ()
    """Names of the stack proxies in the state, which belong to no single Service: shared ones and spares."""
    http_proxies: frozenset[ProxyName] = frozenset()
    """Stack proxies that serve HTTP."""
    heaps: Mapping[ProxyName, HeapBounds] = field(default_factory=lambda: _NO_HEAPS)
    """The bounds of their heaps, as `HeldProxy` has it; absent where nothing shows it."""
    assignments: tuple[HeldProxyAssignment, ...] = ()
    """The Services of the stack proxies."""
    host: HostFacts = field(default_factory=HostFacts)
    access: Mapping[ClusterName, Access] = field(default_factory=lambda: _NO_ACCESS)
    """Access to the live clusters, to publish statuses of their Services."""
    health_ports: Mapping[ClusterName, frozenset[Family]] = field(default_factory=lambda: _NO_HEALTH_PORTS)
    """The families in which Nodes answer on kube-proxy's health port, by cluster; absent: in none."""
    forwarding: Mapping[ClusterName, ForwardingFacts] = field(default_factory=lambda: _NO_FORWARDING)
    """What is known of the way through the API servers of live clusters; absent where it isn't taken."""
    node_routes: Mapping[ClusterName, tuple[PodRoute, ...]] = field(default_factory=lambda: _NO_ROUTES)
    """The ways to Nodes that are pods of another cluster, by theirs; none of their own pods is reached."""
    external_ips: frozenset[IPAddress] = frozenset()
    """spec.externalIPs of Services of any type: kube-proxy takes them for its own on every Node."""
    contents: tuple[Contents, ...] = ()
    """Number of objects in each source, if known."""
    gateway_api: tuple[ObjectOfCluster, ...] = ()
    """Gateway API's objects, and what they refer to; empty where no source has any."""
    overrides: Mapping[ObjectKey, Order] = field(default_factory=lambda: _NO_OVERRIDES)
    """Overrides by commands, also of Services that aren't among `services`."""
    name_servers: tuple[tuple[IPAddress, int], ...] = ()
    """Where the stack's own name server answers by the state, and with which port."""
    authority: LocalAuthority | None = None
    """Authority of certificates for hosts without a Secret; None if the stack disables that."""
    classes: Mapping[ClusterName, Mapping[ObjectKind, ClassFacts]] = field(default_factory=lambda: _NO_CLASSES)
    """The live clusters that get classes `local-lb`, with what is known of each kind; an absent kind is unknown."""
    held_classes: tuple[HeldClass, ...] = ()
    """The classes in the state."""
    initialized_nodes: tuple[InitializedNode, ...] = ()
    """The Nodes that the state says are initialized."""
    hints: tuple[str, ...] = ()
    """Proposed improvements from sources, for information."""
