"""Proxies of which the whole configuration is known."""

from __future__ import annotations

from ipaddress import ip_address, ip_network

from locallb.model.faults import Fault
from locallb.model.identities import Protocol, ProxyId, ProxyName, UpstreamName
from locallb.model.objects import Discovery, ProxyProtocol
from locallb.model.serving import Backend, ConnectCheck, HttpCheck, Listener, Proxy, Upstream

TCP, UDP = Protocol.TCP, Protocol.UDP
NODES = tuple(Backend.at(ip_address(f"127.0.0.{n}"), 30080) for n in (1, 2, 3))
NODES6 = (Backend.at(ip_address("fd00::1"), 30080), Backend.at(ip_address("fd00::2"), 30080))
ELSEWHERE = Backend.at(ip_address("fd00::1"), 30080, ip_address("127.0.0.1"))
PODS = tuple(Backend.at(ip_address(f"127.0.1.{n}"), 8080) for n in (1, 2))
QUERIED = tuple(Backend.at(backend.address, backend.port, None, 10256) for backend in NODES)
ASKED_PODS = (
    Backend.at(ip_address("127.0.1.1"), 5353, ip_address("127.0.0.1"), 10256),
    Backend.at(ip_address("127.0.1.2"), 5353, None, None),
)
V4, V6 = ip_address("127.99.4.1"), ip_address("fd00:99::e1")
RANGES = (ip_network("10.0.0.0/8"), ip_network("127.0.0.0/8"), ip_network("fd00:ff::/64"), ip_network("10.1.2.3/32"))


def _proxy(*pairs: tuple[Listener, Upstream], discovery: Discovery = Discovery.EDS) -> Proxy:
    upstreams = tuple({upstream.name: upstream for _, upstream in pairs}.values())
    return Proxy(
        ProxyName("kind/default/web"),
        ProxyId("0123456789ab"),
        discovery,
        tuple(listener for listener, _ in pairs),
        upstreams,
    )


def _dual(*, affinity: bool = False) -> tuple[tuple[Listener, Upstream], ...]:
    return tuple(
        (
            Listener(address, 8080, protocol, UpstreamName(f"{protocol.lower()}-8080-{family}"), RANGES, affinity),
            Upstream(UpstreamName(f"{protocol.lower()}-8080-{family}"), protocol, nodes, affinity, HttpCheck(10256)),
        )
        for address, family, nodes in ((V4, "ipv4", NODES), (V6, "ipv6", NODES6))
        for protocol in (TCP, UDP)
    )


CASES = {
    "tcp": _proxy(
        (Listener(V4, 8080, TCP, UpstreamName("tcp-8080-ipv4")), Upstream(UpstreamName("tcp-8080-ipv4"), TCP, NODES))
    ),
    "udp": _proxy(
        (Listener(V4, 5353, UDP, UpstreamName("udp-5353-ipv4")), Upstream(UpstreamName("udp-5353-ipv4"), UDP, NODES))
    ),
    "connect-check": _proxy(
        (
            Listener(V4, 8080, TCP, UpstreamName("tcp-8080-ipv4")),
            Upstream(UpstreamName("tcp-8080-ipv4"), TCP, NODES, health=ConnectCheck()),
        )
    ),
    "log": _proxy(
        (
            Listener(V4, 8080, TCP, UpstreamName("tcp-8080-ipv4"), RANGES, log="access-log"),
            Upstream(UpstreamName("tcp-8080-ipv4"), TCP, NODES),
        )
    ),
    "log-and-fault": _proxy(
        (
            Listener(
                V6,
                8080,
                TCP,
                UpstreamName("tcp-8080-ipv6"),
                fault=Fault("2026-11-22T18:00:00Z", refuse=1000),
                log="access-log",
            ),
            Upstream(UpstreamName("tcp-8080-ipv6"), TCP, NODES6),
        ),
        discovery=Discovery.STATIC,
    ),
    "fault": _proxy(
        (
            Listener(V4, 8080, TCP, UpstreamName("tcp-8080-ipv4"), fault=Fault("2026-11-22T18:00:00Z", 1000, 500, 100)),
            Upstream(UpstreamName("tcp-8080-ipv4"), TCP, NODES, health=ConnectCheck()),
        )
    ),
    "http-check-local": _proxy(
        (
            Listener(V4, 8080, TCP, UpstreamName("tcp-8080-ipv4")),
            Upstream(UpstreamName("tcp-8080-ipv4"), TCP, NODES, health=HttpCheck(31000)),
        )
    ),
    "standby": _proxy(
        (
            Listener(V4, 8080, TCP, UpstreamName("tcp-8080-ipv4")),
            Upstream(UpstreamName("tcp-8080-ipv4"), TCP, NODES[:1], health=HttpCheck(31000), standby=NODES[1:]),
        )
    ),
    "straight": _proxy(
        (
            Listener(V4, 8080, TCP, UpstreamName("tcp-8080-ipv4")),
            Upstream(UpstreamName("tcp-8080-ipv4"), TCP, PODS, health=ConnectCheck(), standby=QUERIED),
        ),
        (
            Listener(V4, 5353, UDP, UpstreamName("udp-5353-ipv4")),
            Upstream(UpstreamName("udp-5353-ipv4"), UDP, ASKED_PODS, health=HttpCheck(31000), standby=NODES),
        ),
    ),
    **{
        f"proxy-protocol-{version}": _proxy(
            (
                Listener(V4, 8080, TCP, UpstreamName("tcp-8080-ipv4")),
                Upstream(UpstreamName("tcp-8080-ipv4"), TCP, NODES, health=health, proxy_protocol=version),
            ),
            discovery=discovery,
        )
        for version, health, discovery in (
            (ProxyProtocol.V1, HttpCheck(10256), Discovery.EDS),
            (ProxyProtocol.V2, ConnectCheck(), Discovery.STATIC),
        )
    },
    "checked-by-the-other-family": _proxy(
        (
            Listener(V6, 8080, TCP, UpstreamName("tcp-8080-ipv6")),
            Upstream(UpstreamName("tcp-8080-ipv6"), TCP, (ELSEWHERE, *NODES6[1:]), health=HttpCheck(10256)),
        )
    ),
    "dual-stack-ranges": _proxy(*_dual()),
    "dual-stack-affinity-static": _proxy(*_dual(affinity=True), discovery=Discovery.STATIC),
    "no-backends": _proxy(
        (Listener(V4, 8080, TCP, UpstreamName("tcp-8080-ipv4")), Upstream(UpstreamName("tcp-8080-ipv4"), TCP, ()))
    ),
    "nothing": _proxy(),
}
