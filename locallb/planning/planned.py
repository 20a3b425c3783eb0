"""The types of a plan, frozen: placements, rejections, proxies with their runs, and the parts for whole clusters.

A run's types (`PlannedRun`, `RunPlanner`) are the pure half of a runtime. Parts for a cluster, whatever its
Services, are routes to pods, stub zones, classes and Nodes. Not here: the decisions (`plan`), and starting, watching
and ending runs (`runtimes.runtime`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from operator import attrgetter
from typing import Any, Protocol, cast

from msgspec import Struct, field

from locallb.config.registry import RUNTIMES
from locallb.config.settings import IpMode, Settings, StatusOrder
from locallb.dns.records import Name
from locallb.envoy import Rendered, RenderedPart
from locallb.model.desired import Ref, ResourceKey
from locallb.model.gateway_objects import Named
from locallb.model.http_routes import Forward
from locallb.model.http_serving import HttpListener, HttpRoutes, TcpForward
from locallb.model.identities import (
    ClusterName,
    Home,
    IPAddress,
    ObjectKey,
    ObjectKind,
    Owner,
    ProxyName,
    SharingKey,
    UpstreamName,
)
from locallb.model.identities import Protocol as Transport
from locallb.model.objects import ServicePort, Via
from locallb.model.own_classes import WantedClass
from locallb.model.own_nodes import InitializedNode
from locallb.model.reasons import Problem
from locallb.model.relays import RelayedPort, RelayId, relay_id
from locallb.model.routes import PodRoute
from locallb.model.serving import Listener, Part, Proxy, Upstream
from locallb.model.snapshot import Access, HostFacts, MappedPort
from locallb.model.texts import proxy_owner
from locallb.planning.notices import Notice

SocketAddress = tuple[IPAddress, int, Transport]
"""Where clients find a port."""


class PlannedRun(Protocol):
    """Parameters of one proxy's run. A different value means another run."""

    @property
    def runtime(self) -> str:
        """The word of the runtime."""

    @property
    def envoy(self) -> str:
        """The version of Envoy; empty where something else determines it, such as an image."""

    @property
    def container(self) -> str:
        """The name of its container; empty where it has none."""

    @property
    def reported(self) -> tuple[str, ...]:
        """Its description for a report."""

    @property
    def by_group(self) -> bool:
        """Whether it uses the proxy's directory by this user's group."""


class RunInputs(Struct, frozen=True):
    """Inputs of a run besides its proxy."""

    owner: Owner
    settings: Settings
    host: HostFacts
    addresses: tuple[IPAddress, ...] = ()
    """Addresses of the one Service that is served; none for a proxy of the stack."""
    places: Iterable[SocketAddress] = ()
    """Where its clients come, also while there are no backends."""


class DesiredRun(Struct, frozen=True):
    """The resource that is a run of Envoy."""

    key: ResourceKey
    inputs: Mapping[str, object]
    identity: Ref
    """Identity of this run; another run has to prove itself again."""
    container: Ref | None = None
    """Identity of its container, if it has a network of its own."""


class RunPlanner(Protocol):
    """The pure half of a runtime."""

    @property
    def token(self) -> str:
        """The type of the resource that is a run, in states of every version."""

    @property
    def makes_containers(self) -> bool:
        """Whether the keys of containers are for it."""

    def plan(self, proxy: Proxy, inputs: RunInputs) -> tuple[Proxy, PlannedRun]:
        """Return how `proxy` runs, and the proxy as it must be for that."""

    def desired(self, run: Any, proxy: Proxy, owner: Owner) -> DesiredRun:  # noqa: ANN401 - as `plan` returned it
        """Return the resource of a run, which serves what the proxy's configuration has."""

    def owner(self, declared: Mapping[str, object]) -> ObjectKey | None:
        """Return the owner of a declared run. Never raises."""

    def reported(self, declared: Mapping[str, object]) -> tuple[str, tuple[str, ...]]:
        """Return the version of Envoy and the details of a declared run, as `PlannedRun` has them."""


@cache
def run_planner(word: str) -> RunPlanner:
    """Return how a runtime plans."""
    return cast("RunPlanner", RUNTIMES.load(word, "planner"))


@cache
def run_types() -> Mapping[str, str]:
    """Return the runtime of each type of resource that is a run."""
    return {run_planner(word).token: word for word in RUNTIMES}


RELAY, ROUTES, ZONES = "pod-relay", "pod-routes", "dns-zones"
CLASSES = {ObjectKind.GATEWAY_CLASS: "gateway-class", ObjectKind.INGRESS_CLASS: "ingress-class"}
NODE = "node-"
"""The second part of the names of what the stack has for a cluster, of Nodes its beginning; those of Services have
three."""


class _ForCluster(Struct, frozen=True):
    cluster: ClusterName
    home: Home

    @property
    def part(self) -> str:
        """The second part of its name."""
        raise NotImplementedError

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

    @property
    def part(self) -> str:
        """The same for every cluster."""
        return ROUTES


class PlannedRelay(_ForCluster, frozen=True):
    """The relay that connects to pods of a running cluster through its API server."""

    access: Access
    ports: tuple[RelayedPort, ...]

    @property
    def part(self) -> str:
        """The same for every cluster."""
        return RELAY

    @property
    def id(self) -> RelayId:
        return relay_id(self.home, self.cluster)


class PlannedZones(_ForCluster, frozen=True):
    """The zones that the pods of a running cluster are to resolve."""

    access: Access
    zones: tuple[str, ...]
    """Each with its server, as `dns.stubs` writes it."""

    @property
    def part(self) -> str:
        """The same for every cluster."""
        return ZONES


class PlannedClass(_ForCluster, frozen=True):
    """A class of ours in a running cluster."""

    access: Access
    wanted: WantedClass
    differing: tuple[str, ...] = ()
    """The fields of the object that aren't as wanted, as far as is known; no part of its resource."""

    @property
    def part(self) -> str:
        return CLASSES[self.wanted.kind]


class PlannedNode(_ForCluster, frozen=True):
    """A Node of a running cluster that the stack initializes."""

    access: Access
    wanted: InitializedNode
    differing: tuple[str, ...] = ()
    """The fields of the Node that aren't as wanted; no part of its resource."""

    @property
    def part(self) -> str:
        return f"{NODE}{self.wanted.name}"


class PlannedPort(Struct, frozen=True):
    """A port of a placement: its listeners, and the reason of a missing one if the families differ."""

    port: ServicePort
    listeners: tuple[Listener | HttpListener, ...] = ()
    problem: Problem | None = None
    via: Via | None = None
    """None where it has no listener."""
    silence: Mapping[UpstreamName, Problem] = field(default_factory=dict)
    """Problems that apply if no backend of an upstream takes connections, which only its proxy can detect."""
    tried: Mapping[UpstreamName, tuple[str, ...]] = field(default_factory=dict)
    """Backends of TCP upstreams of which a check says only that their Nodes live."""
    unanswered: Problem | None = None
    """The same once its proxy has reported that for a while, for statuses in clusters."""

    @property
    def upstreams(self) -> tuple[UpstreamName, ...]:
        """Return the names of the upstreams of its listeners."""
        return tuple(dict.fromkeys(name for listener in self.listeners for name in _upstreams(listener)))

    def backends(self, upstreams: Mapping[UpstreamName, Upstream]) -> tuple[str, ...]:
        """Return where its connections go, each place once."""
        behind = (backend for name in self.upstreams if name in upstreams for backend in upstreams[name].backends)
        return tuple(dict.fromkeys(map(str, behind)))

    def __str__(self) -> str:
        return f"{self.port.label} {self.problem.reason}" if self.problem else self.port.label


def _upstreams(listener: Listener | HttpListener) -> Iterator[UpstreamName]:
    if isinstance(listener, Listener):
        yield listener.upstream
        if listener.detour and listener.detour.upstream:
            yield listener.detour.upstream
        return
    for serves in (chain.serves for chain in listener.chains):
        actions = (
            [route.action for host in serves.hosts for route in host.routes]
            if isinstance(serves, HttpRoutes)
            else [serves]
        )
        forwards = (action for action in actions if isinstance(action, Forward | TcpForward))
        targets = (target for forward in forwards for target in forward.targets)
        yield from (target.upstream for target in targets if target.upstream)


class PlannedPart(Struct, frozen=True):
    """The part of a Service in one of the stack's proxies, and its texts for Envoy."""

    part: Part
    rendered: RenderedPart


class PlannedStatus(Struct, frozen=True):
    """The planned part of the status of a Gateway API object or an Ingress in a running cluster."""

    owner: Owner
    access: Access
    status: str
    """Canonical JSON, without times and generations."""
    generation: int
    """Of the object that it was made from."""
    gateway: ObjectKey | None = None
    """The Gateway that must be proven to serve first, for a ListenerSet with served listeners."""

    @property
    def key(self) -> ObjectKey:
        return self.owner.service


class PlannedNews(Struct, frozen=True):
    """The events of an Ingress, or of an object that nobody serves, in a running cluster."""

    owner: Owner
    access: Access
    serving: str = ""
    """Sentence about the served parts and their addresses; empty if nothing is served."""
    refused: tuple[str, ...] = ()
    """Sentences about parts that aren't served because of the Ingress alone."""
    failures: tuple[str, ...] = ()
    """Sentences about other unserved parts."""

    @property
    def key(self) -> ObjectKey:
        return self.owner.service


class LocalUrl(Struct, frozen=True):
    """A URL by a name below `localhost`, and the port of the load balancer that answers there as well."""

    port: int
    url: str


class Placement(Struct, frozen=True):
    """A Service that gets addresses. A port without backends stays closed; the addresses stay."""

    owner: Owner
    addresses: tuple[IPAddress, ...]
    ports: tuple[PlannedPort, ...]
    proxy: ProxyName
    probes: tuple[Listener | HttpListener, ...] = ()
    """Listeners that one TCP connect may check at first publication: with backends, without restricted clients."""
    access: Access | None = None
    """Access to the Service's cluster, to publish its status; None for manifests."""
    notices: tuple[Notice, ...] = ()
    """Further notices for its user."""
    ip_mode: IpMode = IpMode.PROXY
    status_order: StatusOrder = StatusOrder.IP_FAMILIES
    take_over: bool = False
    """Entries of other controllers in its status are removed."""
    sharing: SharingKey = SharingKey("")
    """The key under which other Services may have the addresses, too; empty for none."""
    part: PlannedPart | None = None
    """The fragment for a stack proxy; None if the Service has its own proxy."""
    routes: tuple[str, ...] = ()
    """The routes that a Gateway serves, one readable line each."""
    problem: Problem | None = None
    """The reason that a part is unserved at every port: a Gateway's listener. Its status has its own text for it."""
    withdrawn: Problem | None = None
    """The reason that its status lacks its addresses: its proxy can't be repaired."""
    status: PlannedStatus | None = None
    """The status of a Gateway in a running cluster; None for Services, which have a frontend."""
    names: tuple[Name, ...] = ()
    """Where the stack has zones."""
    hostname: str = ""
    """The name in its status; empty unless that was asked for."""
    statuses: tuple[PlannedStatus, ...] = ()
    """Statuses of Ingresses of a running cluster that are served here."""
    news: tuple[PlannedNews, ...] = ()
    """Events of Ingresses, including ones without any served rule."""
    unreached: Mapping[Named, Problem] = field(default_factory=dict)
    """Services behind the rules of a Gateway or Ingresses with endpoints to which this host has no route."""
    local_urls: tuple[LocalUrl, ...] = ()
    """Where the stack serves names below `localhost`, the shortest first and those of HTTP before those of HTTPS."""

    @property
    def key(self) -> ObjectKey:
        return self.owner.service

    @property
    def mapped(self) -> tuple[MappedPort, ...]:
        """The mapped ports, on addresses that all Services share; empty where it has its own addresses."""
        ports = (planned.port for planned in self.ports if planned.port.mapped)
        return tuple(MappedPort(port.port, port.protocol, port.mapped) for port in ports)


class Rejection(Struct, frozen=True):
    """A Service that gets nothing, and why."""

    key: ObjectKey
    problem: Problem
    owner: Owner | None = None
    access: Access | None = None
    """Access to the Service's cluster, to publish the reason; None for manifests."""
    status: PlannedStatus | None = None
    """As of a Placement."""
    news: tuple[PlannedNews, ...] = ()
    """As of a Placement."""
    local_urls: tuple[LocalUrl, ...] = ()
    """As of a Placement: a port that may not be bound at an address has a name all the same."""


class PlannedProxy(Struct, frozen=True):
    """A proxy, its owner, and Envoy's files. One of the stack's gets the rest of its configuration from placements."""

    proxy: Proxy
    owner: Owner
    rendered: Rendered
    run: PlannedRun
    """Its run."""
    routes: tuple[PodRoute, ...] = ()
    """Routes in its container's network namespace to the pods of its cluster."""
    serves: ObjectKey | None = None
    """The Gateway, or Ingresses, that a stack proxy serves exclusively."""

    @property
    def key(self) -> ObjectKey:
        """The key of its owner: the Service's, or for one of the stack a key of its own, without a cluster."""
        return self.owner.service

    @property
    def root(self) -> ObjectKey:
        """The key of its parent resource: of the only Service that it serves, else its own."""
        return self.serves or self.key


class Plan(Struct, frozen=True):
    """The desired state, sorted by Service; proxies of the stack come last."""

    placements: tuple[Placement, ...] = ()
    proxies: tuple[PlannedProxy, ...] = ()
    rejections: tuple[Rejection, ...] = ()
    routes: tuple[PlannedRoutes, ...] = ()
    relays: tuple[PlannedRelay, ...] = ()
    statuses: tuple[PlannedStatus, ...] = ()
    """Of objects of Gateway API in running clusters, those of Gateways apart."""
    zones: tuple[PlannedZones, ...] = ()
    """Zones for the CoreDNS of running clusters."""
    classes: tuple[PlannedClass, ...] = ()
    """Classes in running clusters."""
    nodes: tuple[PlannedNode, ...] = ()
    """Nodes of running clusters that the stack initializes."""
    unserved: tuple[PlannedNews, ...] = ()
    """Events of objects of running clusters whose class is missing."""
    notices: tuple[str, ...] = ()
    refused: Mapping[ObjectKey, tuple[str, ...]] = field(default_factory=dict)
    """The notices about each Gateway, or Ingresses with one address, where there are any."""
    straight: tuple[str, ...] = ()
    """Sentences about running clusters of which connections go straight to pods."""
    left_out: tuple[str, ...] = ()
    """Sentences about Services of other stacks, and about objects read from sources with nothing to serve."""

    @property
    def awaited(self) -> tuple[tuple[ObjectKey, ObjectKey], ...]:
        """Each ListenerSet with a status that waits for a Gateway's proof, and that Gateway."""
        return tuple((status.key, status.gateway) for status in self.statuses if status.gateway)

    @property
    def all_statuses(self) -> tuple[PlannedStatus, ...]:
        """Return the status of every Gateway API object and every Ingress of running clusters."""
        served = [status for placement in self.placements for status in (placement.status, *placement.statuses)]
        refused = [rejection.status for rejection in self.rejections]
        return tuple(status for status in (*served, *refused, *self.statuses) if status)


_KEY = attrgetter("key")


def placements_of(plan: Plan, keys: Iterable[ObjectKey]) -> tuple[Placement, ...]:
    """Return the placements of these, in the plan's order, which is that of keys, without going through all of it."""
    placements = plan.placements
    places = ((bisect_left(placements, key, key=_KEY), key) for key in sorted(set(keys)))
    return tuple(placements[place] for place, key in places if place < len(placements) and placements[place].key == key)
