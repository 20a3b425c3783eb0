"""HTTP and TLS as a proxy serves them: listeners, certificates, hosts and backends, independent of Envoy.

Each value is validated on creation: an unservable one raises ValueError with a sentence, so that every existing value
can be served. A certificate is a reference; its key is read when it is written for Envoy. The creator of a list of
routes decides their order.

Not here: routes and their options (`http_routes`), and upstreams, backends and L4 listeners
(`serving`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from enum import StrEnum
from typing import TypeAlias

from msgspec import Struct

from locallb.model import http_checks
from locallb.model.faults import Fault
from locallb.model.http_routes import NO_CHANGES, OPTIONS, HttpRoute, Match, Target
from locallb.model.identities import ClusterName, Digest, Fingerprint, IPAddress, IPNetwork, Protocol, place


class Speaks(StrEnum):
    """The protocol of backends."""

    HTTP1 = "http/1.1"
    """WebSocket as well."""
    HTTP2 = "h2"
    """With TLS by ALPN, without it by prior knowledge (h2c); gRPC is this."""


class BackendTls(Struct, frozen=True):
    """Backends are spoken to by TLS, and believed only with a certificate for them, if it isn't said otherwise."""

    server_name: str
    """SNI, and the name that must be in the certificate where `dns_names` and `uris` are empty."""
    authorities: str = ""
    """PEM; empty: the authorities that the system trusts."""
    dns_names: tuple[str, ...] = ()
    uris: tuple[str, ...] = ()
    """Names of which one must be in the certificate, as DNS name or URI."""
    client: Certificate | None = None
    """The client certificate of the proxy."""
    believes_all: bool = False
    """Every server is trusted: no name is sent, none is checked."""

    def __post_init__(self) -> None:
        if not self.believes_all:
            http_checks.hostname(self.server_name, wildcard=False)
        elif self.server_name or self.authorities or self.dns_names or self.uris:
            raise ValueError(
                "without verification of backends there may be no server name and no certificate authority"
            )
        _ = self.authorities and http_checks.authorities(self.authorities)
        for name in self.dns_names:
            http_checks.hostname(name)
        for uri in self.uris:
            http_checks.compared(uri)


class HttpBackends(Struct, frozen=True):
    """The HTTP version and the TLS settings with which a proxy connects to backends (`serving.Upstream.http`).

    An upstream without them takes plain bytes.
    """

    speaks: Speaks = Speaks.HTTP1
    tls: BackendTls | None = None


ANY = "*"
"""The hostname of a virtual host for all unmatched hosts."""


class Certificate(Struct, frozen=True, order=True):
    """A Secret of type kubernetes.io/tls, by reference: nothing of its key is here."""

    cluster: ClusterName
    namespace: str
    name: str
    digest: Digest
    """Hex digest of its content: 16 digits or more. Another one means that the files must be written again."""
    file: str = ""
    """Its manifest file; empty if it is read from the cluster's API."""
    tcp_only: bool = False
    """Whether its key is of a kind that Envoy doesn't support with QUIC."""

    def __post_init__(self) -> None:
        if not self.digest or set(self.digest) - set("0123456789abcdef"):
            raise ValueError(f"the digest of Secret {self.namespace}/{self.name} isn't hexadecimal")

    @property
    def terms(self) -> tuple[str, ...]:
        """Return what it is called by, the same for its successor."""
        return "pair", self.cluster, self.namespace, self.name, self.file


class LocalCertificate(Struct, frozen=True, order=True):
    """A certificate that this user's own authority makes, by reference: neither it nor its key exists yet."""

    name: str
    """Its owner among the certificates of a proxy; its successor has the same."""
    hosts: tuple[str, ...]
    """Hostnames, `*.a.test` too, and IP addresses."""
    authority: Fingerprint
    """The authority's fingerprint (hex); empty where there is none yet."""
    period: int
    """Number of its validity period: the next period has a successor."""

    @property
    def terms(self) -> tuple[str, ...]:
        """Return what it is called by, the same for its successor."""
        return "local", self.name

    @property
    def digest(self) -> Digest:
        """Return a digest of all its inputs, so that a change of any gives it a successor."""
        return Digest(hashlib.sha256("\n".join((*self.hosts, self.authority, str(self.period))).encode()).hexdigest())


AnyCertificate: TypeAlias = Certificate | LocalCertificate


class ClientValidation(Struct, frozen=True):
    """Clients show a certificate that one of `authorities` signed."""

    authorities: str
    """PEM, any number of certificates. They are public, so they are here whole."""
    optional: bool = False
    """Clients without a certificate, or with an unverifiable one, are let in as well (AllowInsecureFallback)."""

    def __post_init__(self) -> None:
        http_checks.authorities(self.authorities)


class Termination(Struct, frozen=True):
    """TLS ends here. With several certificates the client's hello decides: name first, then kind of key."""

    certificates: tuple[AnyCertificate, ...]
    clients: ClientValidation | None = None

    def __post_init__(self) -> None:
        if not self.certificates:
            raise ValueError("TLS can't be terminated without a certificate")


class VirtualHost(Struct, frozen=True):
    """Hosts with the same routes; the first route that matches is taken, and 404 is the answer where none does."""

    domains: tuple[str, ...]
    """`a.test`, `*.a.test` (any depth) or `ANY`. The most specific one of a table wins; ports aren't compared."""
    routes: tuple[HttpRoute, ...]
    listener: str = ""
    """The name of the Gateway's listener; empty for Ingresses."""
    hostnames: tuple[str, ...] = ()
    """For each route the hostname that it is written for, of which the most specific comes first; empty: all alike."""

    @property
    def entries(self) -> Iterator[tuple[HttpRoute, Match | None]]:
        """Return the routes in their order, each with what matches preflights of its requests, if that isn't itself.

        A preflight that another route of the host matches by itself is left to that one.
        """
        own = frozenset(route.match for route in self.routes if route.match.method == OPTIONS)
        for route in self.routes:
            preflight = route.match.preflight if route.cors else None
            yield route, None if preflight in own else preflight

    def __post_init__(self) -> None:
        for domain in self.domains:
            _ = domain == ANY or http_checks.host(domain)
        if not self.domains:
            raise ValueError("a virtual host without a hostname takes nothing: leave it out")


class HttpRoutes(Struct, frozen=True):
    """HTTP/1.1, HTTP/2 (h2c too), gRPC and WebSocket, by host and route."""

    hosts: tuple[VirtualHost, ...]
    """No two have a hostname in common."""
    by_source: bool = False
    """Routes may have `sources`: said apart from them, so that whether any has is no change of a listener."""

    def __post_init__(self) -> None:
        if not self.by_source and any(route.sources for host in self.hosts for route in host.routes):
            raise ValueError("a table whose routes have sources says so")
        domains = [domain for host in self.hosts for domain in host.domains]
        if len(domains) != len(set(domains)):
            raise ValueError("two virtual hosts of a table have the same hostname")


class TcpForward(Struct, frozen=True):
    """Bytes, to upstreams by weight. Without an upstream of positive weight, connections are closed at once."""

    targets: tuple[Target, ...]

    def __post_init__(self) -> None:
        if any((target.request, target.response) != (NO_CHANGES, NO_CHANGES) for target in self.targets):
            raise ValueError("bytes have no headers to change")


class Chain(Struct, frozen=True):
    """How connections with one of `names` are served.

    | termination | serves | that is |
    |---|---|---|
    | None | HttpRoutes | plain HTTP |
    | given | HttpRoutes | HTTPS |
    | None | TcpForward | TLS passed through by SNI, or with no names any TCP |
    | given | TcpForward | TLS terminated, TCP behind it |
    """

    serves: HttpRoutes | TcpForward
    names: tuple[str, ...] = ()
    """SNI: `a.test` or `*.a.test`, the most specific wins; none: whatever no other chain of the listener takes."""
    termination: Termination | None = None
    by_tls: bool = False
    """Whether the bytes must be TLS. Envoy doesn't check it: without names it takes any TCP."""

    @property
    def hosts(self) -> tuple[VirtualHost, ...]:
        """The hosts of its routes; none where it forwards bytes."""
        return self.serves.hosts if isinstance(self.serves, HttpRoutes) else ()

    def __post_init__(self) -> None:
        for name in self.names:
            http_checks.host(name)
        if self.names and self.termination is None and isinstance(self.serves, HttpRoutes):
            raise ValueError("plain HTTP has no SNI: hostnames belong to its virtual hosts")


class HttpListener(Struct, frozen=True):
    """One address and port that clients use by HTTP or TLS. No two chains have a name in common."""

    address: IPAddress
    port: int
    chains: tuple[Chain, ...]
    source_ranges: tuple[IPNetwork, ...] = ()
    container_port: int = 0
    """As `serving.Listener` has it."""
    protocol: Protocol = Protocol.TCP
    log: str = ""
    """Likewise, of requests."""
    may_fail: bool = False
    """Whether faults of requests may be added and removed with the routes, without a change of the listener."""
    fault: Fault | None = None
    """The fault of requests that a route matches."""
    http3: bool = False
    """Whether HTTP/3 is requested, at the same port of UDP."""

    def __post_init__(self) -> None:
        names = [name for chain in self.chains for name in chain.names or ("",)]
        if len(names) != len(set(names)):
            raise ValueError(f"{self.name} has two chains for the same hostname")
        if self.protocol is not Protocol.TCP:
            raise ValueError(f"{self.name}: HTTP is served over TCP")
        if self.fault and not self.may_fail:
            raise ValueError(f"{self.name}: a listener whose requests fail says that they may")

    @property
    def name(self) -> str:
        """The listener's name in Envoy and in every message: `127.77.0.5:443/TCP`."""
        return f"{self.place}/{self.protocol}"

    @property
    def place(self) -> str:
        """Where clients connect to: `127.77.0.5:443` or `[fd00::5]:443`."""
        return place(self.address, self.port)

    @property
    def secure(self) -> tuple[Chain, ...]:
        return tuple(chain for chain in self.chains if chain.termination and isinstance(chain.serves, HttpRoutes))

    @property
    def quic(self) -> bool:
        """Return whether HTTP/3 is served as well.

        Envoy can't ask clients for certificates by QUIC, and takes no keys of some kinds.
        """
        ends = [chain.termination for chain in self.secure if chain.termination]
        requires = any(termination.clients for termination in ends)
        certificates = (certificate for end in ends for certificate in end.certificates)
        odd = any(isinstance(certificate, Certificate) and certificate.tcp_only for certificate in certificates)
        return self.http3 and bool(ends) and not requires and not odd and not self.container_port
