"""One side of a comparison: each Service as its clients see it.

A side is made from a plan (the desired state, or another revision's) or from deployed resources (`deployed`).
Where something isn't known on a side it is None, and never compared.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from msgspec import Struct, field
from msgspec.structs import replace

from locallb.envoy.fragments import as_files
from locallb.model.identities import ClusterName, IPAddress, IPNetwork, ObjectKey, Protocol, UpstreamName
from locallb.model.objects import Service, Via
from locallb.model.ranges import sorted_networks
from locallb.model.reasons import Problem, Reason
from locallb.model.snapshot import Snapshot
from locallb.model.texts import digest, owner_fields
from locallb.planning.entrances import hostnames_claimed, ports_without_tls
from locallb.planning.planned import Placement, Plan, PlannedPort, PlannedProxy


class Port(Struct, frozen=True):
    """A port of a Service, as its clients and its backends meet it."""

    number: int
    protocol: Protocol
    listens: tuple[IPAddress, ...] = ()
    """Addresses where it answers; empty where it is closed."""
    sources: tuple[IPNetwork, ...] | None = None
    """Clients allowed, sorted; empty means all, None that it is unknown (a closed port that was deployed)."""
    backends: tuple[str, ...] = ()
    affinity: bool | None = None
    mapped: int = 0
    """Where clients find it on a loopback address, if that is another number than its own."""
    problem: str = ""
    """The code of the reason why it is closed somewhere."""
    message: str = ""
    """The sentence behind it; empty where only the code was deployed."""
    via: Via | None = None
    """Where connections go first; None where it was deployed: the backends themselves tell."""

    @property
    def label(self) -> str:
        """The port's text for users: `8080/TCP`, or `8080/TCP=18080`."""
        return f"{self.number}/{self.protocol}{f'={self.mapped}' if self.mapped else ''}"


class Balancer(Struct, frozen=True):
    """The load balancer of one Service."""

    key: ObjectKey
    addresses: tuple[IPAddress, ...]
    ports: tuple[Port, ...]
    names: tuple[str, ...] = ()
    """In the stack's zones, each with its addresses."""
    proxy: str = ""
    """The name of its proxy."""
    uid: str = ""
    envoy: str = ""
    container: tuple[str, ...] = ()
    """Image, limits and network of its container; empty where it is a process."""
    routes: tuple[str, ...] | None = None
    """What a Gateway or Ingresses serve, a line a route; None where that isn't known (what was deployed)."""
    hostnames: tuple[str, ...] = ()
    """For which it takes requests, or connections by TLS; `*` is every one."""
    without_tls: tuple[str, ...] = ()
    """Ports that take requests without TLS, and not only to send them elsewhere by https."""
    fingerprint: str = ""
    """A digest of all that is declared for it: equal exactly where nothing is to be done."""


class Side(Struct, frozen=True):
    """All Services of one side."""

    label: str
    """Where it comes from, as the reader knows it: `the stack's state`, `origin/main`."""
    balancers: Mapping[ObjectKey, Balancer] = field(default_factory=lambda: MappingProxyType({}))
    rejections: Mapping[ObjectKey, tuple[Problem, ...]] = field(default_factory=lambda: MappingProxyType({}))
    notices: tuple[str, ...] = ()


def fingerprint(
    shown: tuple[list[str], list[str], list[str]],
    proxy: str,
    owner: Mapping[str, str],
    files: Mapping[str, str],
    runs: str,
) -> str:
    """Digest what the resources of one load balancer are declared with.

    `shown` are its addresses, ports and names, `runs` is how its Envoy runs.
    """
    return digest([list(shown), proxy, dict(owner), dict(files), runs])


def planned_side(label: str, snapshot: Snapshot, plan: Plan, *, hostless: bool = False) -> Side:
    """Make the side of a plan.

    `hostless` is for manifests that never met a cluster: where they have no Nodes, or no nodePorts yet, a port without
    backends says nothing about the port, so it is not reported as a problem.
    """
    services = {service.key: service for service in snapshot.services}
    proxies = {planned.proxy.name: planned for planned in plan.proxies}
    blind = _blind(snapshot, plan) if hostless else frozenset()
    balancers = {
        placement.key: _balancer(
            placement,
            proxies[placement.proxy],
            services.get(placement.key, Service(placement.key, ())),
            blind,
            hostless=hostless,
        )
        for placement in plan.placements
    }
    rejections: dict[ObjectKey, tuple[Problem, ...]] = {}
    for rejection in plan.rejections:
        rejections[rejection.key] = (*rejections.get(rejection.key, ()), rejection.problem)
    notices = (*(_blind_notice(cluster) for cluster in sorted(blind)), *plan.notices)
    return Side(label, MappingProxyType(balancers), MappingProxyType(rejections), notices)


def _blind(snapshot: Snapshot, plan: Plan) -> frozenset[ClusterName]:
    keys = (*(service.key for service in snapshot.services), *(placement.key for placement in plan.placements))
    return frozenset(key.cluster for key in keys) - {node.cluster for node in snapshot.nodes}


def _blind_notice(cluster: ClusterName) -> str:
    return f"{cluster}: the manifests have no Nodes, so backends are not part of this report"


def _balancer(
    placement: Placement, planned: PlannedProxy, service: Service, blind: frozenset[ClusterName], *, hostless: bool
) -> Balancer:
    part = placement.part
    upstreams = part.part.upstreams if part else planned.proxy.upstreams
    files = as_files(part.rendered.listeners, part.rendered.clusters) if part else planned.rendered.files
    backends = {upstream.name: tuple(str(backend) for backend in upstream.backends) for upstream in upstreams}
    ports = tuple(_port(port, service, backends) for port in placement.ports)
    run = planned.run
    if hostless:
        ports = tuple(
            _unjudged(port) if service.key.cluster in blind or not given.port.node_port else port
            for port, given in zip(ports, placement.ports, strict=True)
        )
    return Balancer(
        key=placement.key,
        addresses=placement.addresses,
        ports=ports,
        names=tuple(map(str, placement.names)),
        proxy=placement.proxy,
        uid=placement.owner.uid,
        envoy=run.envoy,
        container=run.reported,
        routes=placement.routes,
        hostnames=hostnames_claimed(placement),
        without_tls=ports_without_tls(placement),
        fingerprint=fingerprint(
            (
                [str(address) for address in placement.addresses],
                [str(port) for port in placement.ports],
                [str(name) for name in placement.names],
            ),
            planned.proxy.id,
            owner_fields(placement.owner),
            files,
            "\n".join((run.envoy, *run.reported)),
        ),
    )


def _port(planned: PlannedPort, service: Service, backends: Mapping[UpstreamName, tuple[str, ...]]) -> Port:
    upstreams = sorted(planned.upstreams)
    return Port(
        number=planned.port.port,
        protocol=planned.port.protocol,
        listens=tuple(listener.address for listener in planned.listeners),
        sources=sorted_networks(service.source_ranges),
        backends=tuple(backend for name in upstreams for backend in backends.get(name, ())),
        affinity=service.client_ip_affinity,
        mapped=planned.port.number if planned.port.number != planned.port.port else 0,
        problem=planned.problem.reason if planned.problem else "",
        message=planned.problem.message if planned.problem else "",
        via=planned.via,
    )


def _unjudged(port: Port) -> Port:
    """Forget that a port has no backends."""
    if port.problem != Reason.NO_BACKENDS:
        return port
    return replace(port, problem="", message="")
