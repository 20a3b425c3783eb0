"""What clients of a listener get: the right backend, or nothing where they aren't allowed."""

from __future__ import annotations

from collections import Counter

import pytest

from locallb.model.identities import Protocol
from locallb.model.objects import Discovery
from tests.envoy.conftest import Serve, Start
from tests.support.envoy import rendering, serve
from tests.support.envoy_traffic import Block, Server, ask, ask_tcp, ask_udp

pytestmark = pytest.mark.envoy
TCP, UDP = Protocol.TCP, Protocol.UDP
BOTH = pytest.mark.parametrize("protocol", [TCP, UDP])


def test_tcp_connections_take_turns(start: Start, nodes: Serve, block: Block) -> None:
    """Every backend gets the same number of connections."""
    start(rendering(serve(block[100], nodes("ABC"))))
    assert Counter(ask_tcp(block[100], 8080) for _ in range(30)) == {"A": 10, "B": 10, "C": 10}


def test_udp_sessions_take_turns(start: Start, nodes: Serve, block: Block) -> None:
    """Every backend gets as many sessions; a source address and port that were used before continue theirs."""
    start(rendering(serve(block[100], nodes("ABC"), UDP)))
    sources = [block[n] for n in range(10, 40)]
    assert Counter(ask_udp(block[100], 8080, source) for source in sources) == {"A": 10, "B": 10, "C": 10}


def test_tcp_and_udp_share_a_port_number(start: Start, nodes: Serve, block: Block) -> None:
    """One number serves both protocols, each with its own backends."""
    start(rendering(serve(block[100], nodes("A"), TCP), serve(block[100], nodes("B", first=2), UDP)))
    assert (ask_tcp(block[100], 8080), ask_udp(block[100], 8080)) == ("A", "B")


@pytest.mark.parametrize("discovery", Discovery)
@BOTH
def test_both_ways_of_discovery_serve(
    discovery: Discovery, protocol: Protocol, start: Start, nodes: Serve, block: Block
) -> None:
    """EDS files and static endpoints serve the same."""
    start(rendering(serve(block[100], nodes("A"), protocol), discovery=discovery))
    assert ask(protocol)(block[100], 8080) == "A"


@BOTH
def test_ipv6_listener_and_backend(protocol: Protocol, start: Start, unused_port: int) -> None:
    """An IPv6 address serves from an IPv6 backend."""
    with Server("A", "::1") as server:
        start(rendering(serve("::1", [server], protocol, unused_port)))
        assert ask(protocol)("::1", unused_port) == "A"


@pytest.fixture
def unused_port(nodes: Serve) -> int:
    """Return a port number that is likely free on ::1, of which there is only one."""
    [server] = nodes("Z", first=200)
    return server.port


@pytest.mark.parametrize("size", [1, 1472, 1473, 9000, 9001, 32_768, 65_507])
def test_datagrams_of_every_size_pass_whole(size: int, start: Start, nodes: Serve, block: Block) -> None:
    """A datagram of `size` bytes goes in, and one of the same size comes out."""
    start(rendering(serve(block[100], nodes("A"), UDP)))
    assert ask_udp(block[100], 8080, size=size) == "A"


def test_source_ranges_hold_for_tcp(start: Start, nodes: Serve, block: Block) -> None:
    """Clients inside the ranges are served; others are connected and cut, and reach no backend."""
    [server] = nodes("A")
    start(rendering(serve(block[100], [server], TCP, sources=[f"{block[11]}/32", f"{block[64]}/26", "fd00::/8"])))
    assert [ask_tcp(block[100], 8080, block[n]) for n in (11, 64, 127)] == ["A", "A", "A"]
    accepted = server.accepted
    assert {ask_tcp(block[100], 8080, block[n]) for n in (10, 12, 63, 128)} <= {"ConnectionResetError", "Closed"}
    assert server.accepted == accepted


def test_source_ranges_hold_for_udp(start: Start, nodes: Serve, block: Block) -> None:
    """Datagrams from inside the ranges are answered, others never."""
    start(rendering(serve(block[100], nodes("A"), UDP, sources=[f"{block[11]}/32", f"{block[64]}/26", "fd00::/8"])))
    assert [ask_udp(block[100], 8080, block[n]) for n in (11, 64, 127)] == ["A", "A", "A"]
    assert {ask_udp(block[100], 8080, block[n], timeout=0.1) for n in (10, 12, 63, 128)} == {"TimeoutError"}


@BOTH
def test_source_ranges_hold_for_ipv6(protocol: Protocol, start: Start, unused_port: int) -> None:
    """An IPv6 client is served by a range that contains it, and not by one that doesn't."""
    with Server("A", "::1") as server:
        start(rendering(serve("::1", [server], protocol, unused_port, sources=["10.0.0.0/8", "::/64"])))
        start(rendering(serve("::1", [server], protocol, unused_port + 1, sources=["0.0.0.0/0", "fd00::/8"])))
        assert ask(protocol)("::1", unused_port) == "A"
        assert ask(protocol)("::1", unused_port + 1, timeout=0.1) != "A"


@BOTH
def test_affinity_keeps_each_client_on_its_backend(
    protocol: Protocol, start: Start, nodes: Serve, block: Block
) -> None:
    """A client's address decides its backend, and all backends get clients."""
    start(rendering(serve(block[100], nodes("ABC"), protocol, affinity=True)))
    homes = {n: {ask(protocol)(block[100], 8080, block[n]) for _ in range(4)} for n in range(10, 40)}
    assert all(len(answers) == 1 for answers in homes.values())
    assert set[str]().union(*homes.values()) == {"A", "B", "C"}


@BOTH
def test_affinity_outlives_a_change_of_backends(protocol: Protocol, start: Start, nodes: Serve, block: Block) -> None:
    """When a backend goes, its own clients move and hardly any other; when it returns, they return."""
    three = nodes("ABC")
    clients = [block[n] for n in range(10, 90)]
    envoy = start(rendering(serve(block[100], three, protocol, affinity=True)))
    before = {client: ask(protocol)(block[100], 8080, client) for client in clients}
    envoy.apply(rendering(serve(block[100], three[:2], protocol, affinity=True)))
    without = {client: ask(protocol)(block[100], 8080, client) for client in clients}
    moved = [client for client in clients if before[client] != "C" and without[client] != before[client]]
    assert len(moved) <= 3, "Maglev moves about one of 500; three of 80 is far from what a rehash would move"
    envoy.apply(rendering(serve(block[100], three, protocol, affinity=True)))
    assert {client: ask(protocol)(block[100], 8080, client) for client in clients} == before


def test_clients_with_affinity_move_only_to_added_backends(start: Start, nodes: Serve, block: Block) -> None:
    """From two to four backends half of the clients move; back to two they are where they were."""
    four = nodes("ABCD")
    clients = [f"127.200.{number // 250}.{number % 250 + 1}" for number in range(2000)]

    def answered(by: list[Server]) -> list[str]:
        envoy.apply(rendering(serve(block[100], by, affinity=True)))
        envoy.wait(rendering(serve(block[100], by, affinity=True)))
        return [ask_tcp(block[100], 8080, client) for client in clients]

    envoy = start(rendering(serve(block[100], four[:2], affinity=True)))
    first, more, retry = (answered(four[:count]) for count in (2, 4, 2))
    moved = [new for old, new in zip(first, more, strict=True) if new != old]
    assert 0.45 < len(moved) / len(clients) < 0.55
    assert len([new for new in moved if new in "AB"]) / len(clients) < 0.02
    assert retry == first
