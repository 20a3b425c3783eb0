"""Golden files: what Envoy is told for typical proxies, byte for byte, and that Envoy takes it."""

from __future__ import annotations

import secrets
from ipaddress import ip_address, ip_network
from pathlib import Path

import pytest

from locallb.envoy import Rendered, render
from locallb.model.faults import Fault
from locallb.model.identities import Protocol, ProxyId, ProxyName, UpstreamName
from locallb.model.objects import Discovery, ProxyProtocol
from locallb.model.serving import Backend, ConnectCheck, HttpCheck, Listener, Proxy, Upstream
from tests.conftest import Golden
from tests.envoy.support import Envoy, quiet, validate

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


@pytest.mark.parametrize("case", CASES)
def test_a_proxy_renders_to_its_golden_files(case: str, golden: Golden) -> None:
    """The files of each case are those in tests/goldens/envoy, byte for byte."""
    golden.check(f"envoy/{case}", render(CASES[case]).files)


def test_no_golden_case_is_stale(golden: Golden) -> None:
    """Every directory of tests/goldens/envoy belongs to a case."""
    golden.cases("envoy", CASES)


@pytest.mark.envoy
@pytest.mark.parametrize("case", CASES)
def test_envoy_validates_every_golden_configuration(case: str, tmp_path: Path, golden: Golden) -> None:
    """`envoy --mode validate` accepts the golden listeners, clusters and endpoints, without a warning."""
    files = {path.name: path.read_text() for path in golden.path(f"envoy/{case}").iterdir()}
    result = validate(tmp_path, files)
    assert (result.returncode, quiet(result.stderr)) == (0, ""), result.stdout
    assert "OK" in result.stdout


@pytest.mark.envoy
def test_validation_is_not_blind(tmp_path: Path) -> None:
    """A listener that Envoy can't take makes the validation fail: the test above does look inside."""
    files = dict(render(CASES["udp"]).files)
    files["lds.json"] = files["lds.json"].replace("max_rx_datagram_size", "max_datagram")
    result = validate(tmp_path, files)
    assert result.returncode == 1
    assert "max_datagram" in result.stderr


@pytest.mark.envoy
@pytest.mark.parametrize("case", CASES)
def test_a_running_envoy_loads_every_golden_configuration(case: str, tmp_path: Path) -> None:
    """All listeners are bound, both versions are active, nothing is logged; addresses vary for parallel runs only."""
    rendered = render(CASES[case])
    octet = secrets.randbelow(150) + 100
    files = {
        name: text.replace("127.99.4.1", f"127.{octet}.4.1").replace("fd00:99::e1", f"fd00:{octet}::e1")
        for name, text in rendered.files.items()
    }
    moved = Rendered(files, rendered.versions)
    with Envoy(tmp_path, moved) as envoy:
        envoy.wait(moved)
        assert envoy.log() == ""
