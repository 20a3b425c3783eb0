"""The types of a plan: placements, rejections and proxies, frozen. Not here: how any of it is decided (`plan`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum

from msgspec import Struct, field

from locallb.config.status_settings import IpMode, StatusOrder
from locallb.dns.records import Name
from locallb.envoy import Rendered, RenderedPart
from locallb.model.gateway.objects import Named
from locallb.model.http.routes import Forward
from locallb.model.http.serving import HttpListener, HttpRoutes, TcpForward
from locallb.model.identities import IPAddress, ObjectKey, Owner, ProxyName, SharingKey, UpstreamName
from locallb.model.network.routes import PodRoute
from locallb.model.objects import EMPTY, ServicePort
from locallb.model.reasons import Problem
from locallb.model.serving import Listener, Part, Proxy
from locallb.model.snapshot import Access, MappedPort
from locallb.planning.notices import Notice
from locallb.planning.planned_for_clusters import PlannedRoutes, PlannedZones
from locallb.planning.runs import PlannedRun


class Via(StrEnum):
    """Where the connections of a port go first."""

    PODS = "pods"
    NODE_PORTS = "nodePorts"
    BOTH = "both"
    """Its families differ."""


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
        """Return which object."""
        return self.owner.service


class PlannedNews(Struct, frozen=True):
    """The events of an Ingress in a running cluster."""

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
        """Which object."""
        return self.owner.service


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
    outputs: Mapping[str, object] = field(default_factory=lambda: EMPTY)
    """Inputs of the enabled outputs, by output key."""
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

    @property
    def key(self) -> ObjectKey:
        """Return which Service."""
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
    statuses: tuple[PlannedStatus, ...] = ()
    """Of objects of Gateway API in running clusters, those of Gateways apart."""
    zones: tuple[PlannedZones, ...] = ()
    """Zones for the CoreDNS of running clusters."""
    notices: tuple[str, ...] = ()
    refused: Mapping[ObjectKey, tuple[str, ...]] = field(default_factory=dict)
    """The notices about each Gateway, or Ingresses with one address, where there are any."""
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
