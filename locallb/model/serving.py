"""Listeners, upstreams and backends of a proxy, independent of Envoy (`envoy` makes its configuration)."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct
from msgspec.structs import replace

from locallb.model.faults import Detour, Fault
from locallb.model.http_serving import AnyCertificate, BackendTls, HttpBackends, HttpListener
from locallb.model.identities import IPAddress, IPNetwork, PartId, Protocol, ProxyId, ProxyName, UpstreamName, place
from locallb.model.objects import Discovery, ProxyProtocol
from locallb.model.relays import Relayed


class Backend(Struct, frozen=True):
    """Where a connection may go: a Node's address and a NodePort, or an endpoint's own address and port."""

    address: IPAddress
    port: int
    checked_at: IPAddress | None = None
    """The address of the same Node that the health check queries; None for `address` itself."""
    checked_port: int | None = 0
    """The port there; 0 for the check's own, None where it has none: the backend counts as healthy."""
    relayed: Relayed | None = None
    """The relay that connections to a pod go through; None where this host has a route."""

    @classmethod
    def at(
        cls, address: IPAddress, port: int, checked_at: IPAddress | None = None, checked_port: int | None = 0
    ) -> Backend:
        return cls(address, port, None if checked_at == address else checked_at, checked_port)

    @property
    def place(self) -> tuple[int, int, int]:
        """IP version, address and port as numbers: equal for two backends that receive the same connections."""
        return self.address.version, int(self.address), self.port

    def __str__(self) -> str:
        return place(self.address, self.port)


def distinct(backends: Iterable[Backend], *, without: Iterable[Backend] = ()) -> tuple[Backend, ...]:
    """Return one backend for each place, the first that is given, sorted by place; none at a place of `without`."""
    by_place: dict[tuple[int, int, int], Backend] = {}
    for backend in backends:
        by_place.setdefault(backend.place, backend)
    for backend in without:
        by_place.pop(backend.place, None)
    return tuple(by_place[key] for key in sorted(by_place))


class ConnectCheck(Struct, frozen=True):
    """A backend is healthy while a TCP connection to it opens."""


class HttpCheck(Struct, frozen=True):
    """A backend is healthy while GET `path` on `port` of its Node answers 200 (kube-proxy's health ports)."""

    port: int
    path: str = "/healthz"


HealthCheck = ConnectCheck | HttpCheck | None


CHECK_INTERVAL = 500
"""Milliseconds: a dead node is found after 0.75 s at most. A proxy with 30 backends needs 0.6 % of a core."""
_MAX_CHECKS = 400
"""Health checks of a load balancer a second."""


class Upstream(Struct, frozen=True):
    """The backends of one port in one family. `name` is ours (`tcp-8080-ipv4`): it becomes a file name."""

    name: UpstreamName
    protocol: Protocol
    backends: tuple[Backend, ...]
    client_ip_affinity: bool = False
    health: HealthCheck = None
    standby: tuple[Backend, ...] = ()
    """Backends that take over when none of `backends` is healthy and they are."""
    proxy_protocol: ProxyProtocol | None = None
    """How backends learn the client's address; health checks don't send it."""
    http: HttpBackends | None = None
    """Requests go there, from HTTP listeners; None: connections or datagrams."""
    measured: bool = False
    """Whether Envoy counts bytes and latencies as well."""
    weights: tuple[int, ...] = ()
    """Of `backends`, one by one; empty where all are alike."""
    bytes_by: BackendTls | None = None
    """The TLS by which bytes go there that are no requests."""
    bounded: bool = True
    """As `Proxy` has it."""
    check_every: int = CHECK_INTERVAL
    """Milliseconds between two health checks of a backend."""

    @property
    def tls(self) -> BackendTls | None:
        """The TLS by which backends are spoken to; None: none."""
        return self.http.tls if self.http else self.bytes_by


def with_bounded_checks(upstreams: tuple[Upstream, ...]) -> tuple[Upstream, ...]:
    """Double the interval of health checks until those of all these upstreams together aren't too many."""
    checked = sum(len(upstream.backends) + len(upstream.standby) for upstream in upstreams if upstream.health)
    interval = CHECK_INTERVAL
    while checked * 1000 > _MAX_CHECKS * interval:
        interval *= 2
    if interval == CHECK_INTERVAL:
        return upstreams
    return tuple(replace(upstream, check_every=interval) if upstream.health else upstream for upstream in upstreams)


class Listener(Struct, frozen=True):
    """One address, port and protocol that clients use, and the upstream behind it."""

    address: IPAddress
    port: int
    protocol: Protocol
    upstream: UpstreamName
    source_ranges: tuple[IPNetwork, ...] = ()
    client_ip_affinity: bool = False
    container_port: int = 0
    """Envoy's port inside a container with ports that Docker publishes, on every address there; 0: the port itself."""
    patient: bool = False
    """Whether a client without an accepting backend is held for about a second, until another may be configured."""
    fault: Fault | None = None
    """The fault of its TCP connections."""
    detour: Detour | None = None
    """Where they go instead for a while, of TCP."""
    log: str = ""
    """The cluster to which lines about its connections can go, of TCP; empty where none can be asked for."""
    bounded: bool = True
    """As `Proxy` has it."""

    @property
    def name(self) -> str:
        """The listener's name in Envoy and in every message: `127.77.0.5:8080/TCP`."""
        return f"{self.place}/{self.protocol}"

    @property
    def place(self) -> str:
        """Where clients connect to: `127.77.0.5:8080` or `[fd00::5]:8080`."""
        return place(self.address, self.port)


class ServedName(Struct, frozen=True):
    """A name, or a wildcard, and the addresses that are answered."""

    name: str
    addresses: tuple[IPAddress, ...]
    ttl: int


class NameListener(Struct, frozen=True):
    """One address and port at which DNS questions are answered from a table, by UDP."""

    address: IPAddress
    port: int
    table: tuple[ServedName, ...] = ()
    """Sorted by name, each once."""

    @property
    def name(self) -> str:
        """The listener's name, as `Listener` has it."""
        return f"{place(self.address, self.port)}/{Protocol.UDP}"


class PublishedPort(Struct, frozen=True):
    """A port of a container that Docker publishes: clients use `address`:`port`, Envoy listens at `container_port`."""

    address: IPAddress
    port: int
    protocol: Protocol
    container_port: int


class HeapBounds(Struct, frozen=True):
    """What a proxy refuses and ends when its heap is full, and whether it counts; the same as long as it runs."""

    size: int
    """Bytes beyond which it refuses; 0 for no bounds of its memory at all, as a proxy of an earlier version has none,
    which only a replacement could bound."""
    ends_stalled: bool = True
    """Whether it then ends stalled requests: proxies of earlier versions wait for their backends."""
    counts_rejected: bool = True
    """Whether it counts requests that it rejects by their form, where it serves HTTP: earlier versions don't."""


class ProxyTraits(Struct, frozen=True):
    """What a running proxy keeps, as a change would end it or its connections. None: nothing shows it, or it is new.

    `envoy.push` reads them from the files of a proxy.
    """

    patient: bool | None = None
    """Whether its listeners hold clients (`Listener.patient`); None where it has none for TCP."""
    may_fail: bool | None = None
    """Whether its listeners take faults (`http_serving.HttpListener.may_fail`); None where it has none for HTTP."""
    heap: HeapBounds | None = None
    udp_only: bool | None = None
    """Whether it was started to serve UDP alone."""
    datagrams: frozenset[str] = frozenset()
    """Places of its UDP listeners, also of ones that it has given up since it was started."""


class Proxy(Struct, frozen=True):
    """One Envoy: its name, its discovery of endpoints and its traffic."""

    name: ProxyName
    id: ProxyId
    discovery: Discovery
    listeners: tuple[Listener, ...] = ()
    upstreams: tuple[Upstream, ...] = ()
    published: tuple[PublishedPort, ...] = ()
    """Empty if Envoy binds the addresses itself. Ports without backends are included, so that added and removed
    backends need no other container.
    """
    http: tuple[HttpListener, ...] = ()
    may_serve_http: bool = False
    """HTTP listeners may be added while it runs: its bootstrap, which never changes, has their requirements."""
    names: tuple[NameListener, ...] = ()
    heap: HeapBounds | None = None
    """None for what a process of this host may have."""
    udp_only: bool = False
    """It is replaced before it serves anything but UDP, so that no stream ever depends on its drain time."""
    unbound: tuple[str, ...] = ()
    """Places of UDP listeners that it had since it was started and hasn't now, with sockets that Envoy keeps."""
    released: tuple[str, ...] = ()
    """Those that its Service gave up: the others have no backends."""

    @property
    def bounded(self) -> bool:
        """Return whether its memory is bounded."""
        return self.heap is None or self.heap.size != 0

    @property
    def certificates(self) -> tuple[AnyCertificate, ...]:
        """Return what it shows of itself to clients and backends, each once."""
        terminations = [chain.termination for listener in self.http for chain in listener.chains if chain.termination]
        used = {certificate for termination in terminations for certificate in termination.certificates}
        to_backends = [upstream.http.tls.client for upstream in self.upstreams if upstream.http and upstream.http.tls]
        used |= {certificate for certificate in to_backends if certificate}
        return tuple(sorted(used, key=lambda certificate: (certificate.terms, certificate.digest)))

    @property
    def every_listener(self) -> tuple[Listener | HttpListener | NameListener, ...]:
        return (*self.listeners, *self.http, *self.names)


class Part(Struct, frozen=True):
    """One Service's share of a stack proxy."""

    id: PartId
    """Its upstreams' names begin with it."""
    proxy: ProxyId
    listeners: tuple[Listener, ...] = ()
    upstreams: tuple[Upstream, ...] = ()
    http: tuple[HttpListener, ...] = ()
