"""What a change of configuration does: it takes effect at once, and clients that it doesn't concern see nothing."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from locallb.envoy import Rendered, push, rollout, watches
from locallb.model.identities import Protocol
from locallb.model.objects import Discovery
from locallb.model.serving import ConnectCheck, HttpCheck
from locallb.storage.files import PRIVATE
from tests.envoy.conftest import Serve, Start
from tests.support.envoy import Envoy, rendering, serve
from tests.support.envoy_traffic import Block, Load, ask_tcp, ask_udp
from tests.support.waiting import becomes

pytestmark = pytest.mark.envoy
TCP, UDP = Protocol.TCP, Protocol.UDP
DISCOVERY = pytest.mark.parametrize("discovery", Discovery)


@contextmanager
def _stream(address: str, port: int) -> Iterator[socket.socket]:
    with socket.create_connection((address, port), timeout=5) as client:
        yield client


def _echo(client: socket.socket) -> str:
    client.sendall(b"?")
    return client.recv(1).decode()


@DISCOVERY
def test_backend_changes_fail_no_request(discovery: Discovery, start: Start, nodes: Serve, block: Block) -> None:
    """Under a constant rate, backends come, go and are all exchanged: nothing is refused, reset or slow."""
    three, others = nodes("ABC"), nodes("DE", first=11)
    envoy = start(rendering(serve(block[100], three, health=ConnectCheck()), discovery=discovery))
    with Load(lambda: ask_tcp(block[100], 8080)) as load:
        for backends in (three[:1], three[1:], others, [*three, *others], three[2:]):
            time.sleep(0.2)
            envoy.apply(rendering(serve(block[100], backends, health=ConnectCheck()), discovery=discovery))
        time.sleep(0.2)
    assert load.failures("ABCDE") == []
    assert max(outcome.seconds for outcome in load.outcomes) < 0.5 + load.late


def test_added_backends_lose_no_datagram(start: Start, nodes: Serve, block: Block) -> None:
    """Under a constant rate of new UDP sessions, backends that come cost none, and then get their share."""
    three = nodes("ABC")
    check = HttpCheck(three[0].port)
    envoy = start(rendering(serve(block[100], three[:1], UDP, health=check)))
    with Load(lambda: ask_udp(block[100], 8080)) as load:
        for count in (2, 3):
            time.sleep(0.2)
            envoy.apply(rendering(serve(block[100], three[:count], UDP, health=check)))
        time.sleep(0.2)
    assert load.failures("ABC") == []
    assert {outcome.answer for outcome in load.outcomes} == {"A", "B", "C"}


def test_removed_backends_lose_answers_in_flight_at_most(start: Start, nodes: Serve, block: Block) -> None:
    """Envoy ends the UDP sessions of a backend that leaves: an answer on its way is lost, no later datagram is."""
    three = nodes("ABC")
    check, changes = HttpCheck(three[0].port), list[tuple[float, float]]()
    envoy = start(rendering(serve(block[100], three, UDP, health=check)))
    with Load(lambda: ask_udp(block[100], 8080)) as load:
        for backends in (three[:2], three[1:2]):
            time.sleep(0.2)
            began = time.perf_counter()
            envoy.apply(rendering(serve(block[100], backends, UDP, health=check)))
            changes.append((began, time.perf_counter()))
        time.sleep(0.2)
    for outcome in load.failures("ABC"):
        assert any(began - 0.02 <= outcome.began <= ended + 0.02 for began, ended in changes), (outcome, changes)
    assert len(load.failures("ABC")) <= 2


def test_a_udp_port_that_is_given_up_stays_bound_until_its_proxy_ends(start: Start, nodes: Serve, block: Block) -> None:
    """By Envoy 1.40, not by 1.39: where this fails, docs/traffic.md may say so, and no process needs to take over.

    Other ports go on being served, and a TCP port is free at once.
    """
    servers = nodes("A")
    ports = [serve(block[100], servers, kind, number) for kind in (TCP, UDP) for number in (8080, 8081)]
    envoy = start(rendering(*ports))
    assert [ask_udp(block[100], number) for number in (8080, 8081)] == ["A", "A"]
    envoy.apply(rendering(ports[0], ports[2]))
    becomes(lambda: _can_bind(block[100], 8081, socket.SOCK_STREAM), "the TCP port is free")
    assert (ask_udp(block[100], 8080), ask_tcp(block[100], 8080)) == ("A", "A")
    assert not _can_bind(block[100], 8081, socket.SOCK_DGRAM)
    envoy.process.kill()
    envoy.process.wait()
    assert _can_bind(block[100], 8081, socket.SOCK_DGRAM)


@DISCOVERY
def test_what_came_to_a_udp_port_while_it_was_not_served_is_delivered_to_nobody(
    discovery: Discovery, start: Start, nodes: Serve, block: Block
) -> None:
    """Also where it was changed before it was given up, and is given up twice; what comes afterwards arrives."""
    [server] = nodes("A")
    retained, port = (serve(block[100], [server], UDP, number) for number in (8080, 8081))
    changed = serve(block[100], [server], UDP, 8081, sources=["127.0.0.0/8"])
    with_port, without = (rendering(*ports, discovery=discovery) for ports in ((retained, port), (retained,)))
    envoy = start(with_port)
    _roll_out(envoy, rendering(retained, changed, discovery=discovery))
    for _ in range(2):
        _roll_out(envoy, without)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
            for _ in range(100):
                client.sendto(b"late", (block[100], 8081))
        observed = server.datagrams
        _roll_out(envoy, with_port)
        assert ask_udp(block[100], 8081) == "A"
        assert server.datagrams == observed + 1


@DISCOVERY
def test_a_proxy_of_udp_alone_frees_ports_at_once_and_loses_no_datagram_of_others(
    discovery: Discovery, start: Start, nodes: Serve, block: Block
) -> None:
    """Ports come and go while another one serves at a constant rate."""
    servers = nodes("A")
    retained, port = (serve(block[100], servers, UDP, number) for number in (8080, 8081))
    envoy = start(rendering(retained, discovery=discovery, udp_only=True))
    with Load(lambda: ask_udp(block[100], 8080)) as load:
        for served in ((retained, port), (retained,)) * 2:
            time.sleep(0.1)
            envoy.apply(rendering(*served, discovery=discovery, udp_only=True))
            if port not in served:
                becomes(lambda: _can_bind(block[100], 8081, socket.SOCK_DGRAM), "the UDP port is free")
        time.sleep(0.1)
    assert load.failures("A") == []


@DISCOVERY
def test_a_port_of_a_proxy_of_udp_alone_is_never_unbound_while_it_changes(
    discovery: Discovery, start: Start, nodes: Serve, block: Block
) -> None:
    """Nobody else gets it meanwhile, and it serves afterwards; an answer that is on its way may be lost."""
    retained, changed = (serve(block[100], nodes("A"), UDP, 8080, sources=each) for each in ([], ["127.0.0.0/8"]))
    envoy = start(rendering(retained, discovery=discovery, udp_only=True))
    with Load(lambda: "free" if _can_bind(block[100], 8080, socket.SOCK_DGRAM) else "B") as load:
        for served in (changed, retained) * 2:
            time.sleep(0.1)
            envoy.apply(rendering(served, discovery=discovery, udp_only=True))
            becomes(lambda: ask_udp(block[100], 8080) == "A", "it serves")
        load.await_more(5)
    assert load.failures("B") == []


def _roll_out(envoy: Envoy, wanted: Rendered) -> None:
    push.roll_out(envoy.directory, rollout.steps(push.texts(envoy.directory), wanted.files), PRIVATE)
    envoy.wait(wanted)


def _can_bind(address: str, port: int, kind: socket.SocketKind) -> bool:
    with socket.socket(socket.AF_INET, kind) as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, kind == socket.SOCK_STREAM)
        try:
            tried.bind((address, port))
        except OSError:
            return False
    return True


@DISCOVERY
def test_port_changes_fail_no_request_on_other_ports(
    discovery: Discovery, start: Start, nodes: Serve, block: Block
) -> None:
    """Ports are added, changed and removed, TCP and UDP, while another port serves at a constant rate."""
    three = nodes("ABC")
    retained = serve(block[100], three, health=ConnectCheck())
    envoy = start(rendering(retained, discovery=discovery))
    with Load(lambda: ask_tcp(block[100], 8080)) as load:
        for more in (
            [serve(block[100], three, port=8081)],
            [serve(block[100], three, port=8081), serve(block[100], three, UDP)],
            [serve(block[100], three, port=8081, sources=["127.0.0.0/8"], health=ConnectCheck())],
            [],
        ):
            time.sleep(0.2)
            envoy.apply(rendering(retained, *more, discovery=discovery))
        time.sleep(0.2)
    assert load.failures("ABC") == []


def test_established_streams_outlive_every_change(start: Start, nodes: Serve, block: Block) -> None:
    """A stream goes on when its backend leaves, its cluster or listener changes, its listener is removed."""
    three = nodes("ABC")
    envoy = start(rendering(serve(block[100], three)))
    with _stream(block[100], 8080) as client:
        home = _echo(client)
        rest = [server for server in three if server.name != home]
        for port in (
            [serve(block[100], rest)],
            [serve(block[100], rest, health=ConnectCheck())],
            [serve(block[100], rest, sources=["127.0.0.0/8"])],
            [serve(block[100], rest), serve(block[100], three, port=8081)],
            [],
        ):
            envoy.apply(rendering(*port))
            assert _echo(client) == home
        assert ask_tcp(block[100], 8080) == "ConnectionRefusedError"
        assert _echo(client) == home


def test_half_closed_streams_are_answered(start: Start, nodes: Serve, block: Block) -> None:
    """A client that has said all it has to say still gets its answer."""
    start(rendering(serve(block[100], nodes("A"))))
    with _stream(block[100], 8080) as client:
        client.sendall(b"?")
        client.shutdown(socket.SHUT_WR)
        assert client.recv(1) == b"A"
        assert client.recv(1) == b""


def test_removed_listeners_refuse_and_added_ones_serve(start: Start, nodes: Serve, block: Block) -> None:
    """A port without listener refuses TCP and doesn't answer UDP; within the time of a file event it serves again."""
    [server] = nodes("A")
    both = rendering(serve(block[100], [server], TCP), serve(block[100], [server], UDP))
    envoy = start(both)
    for _ in range(3):
        envoy.apply(rendering())
        becomes(lambda: ask_tcp(block[100], 8080) == "ConnectionRefusedError", "refused")
        assert ask_udp(block[100], 8080, timeout=0.1) != "A"
        envoy.apply(both)
        envoy.wait(both)
        assert (ask_tcp(block[100], 8080), ask_udp(block[100], 8080)) == ("A", "A")


def test_losing_the_last_backend_refuses(start: Start, nodes: Serve, block: Block) -> None:
    """An upstream without backends has no listener: its clients are refused, and served again later."""
    [server] = nodes("A")
    envoy = start(rendering(serve(block[100], [server])))
    envoy.apply(rendering(serve(block[100], [])))
    becomes(lambda: ask_tcp(block[100], 8080) == "ConnectionRefusedError", "refused")
    envoy.apply(rendering(serve(block[100], [server])))
    becomes(lambda: ask_tcp(block[100], 8080) == "A", "served again")


def test_a_taken_port_is_reported_and_the_others_serve(start: Start, nodes: Serve, block: Block) -> None:
    """The LDS version stays, the free port's listener is there, and config_dump names the reason for the other."""
    [server] = nodes("A")
    envoy = start(rendering())
    wanted = rendering(serve(block[100], [server], port=8080), serve(block[100], [server], port=8081))
    with socket.create_server((block[100], 8081)):
        envoy.put("eds-tcp-8080.json", wanted.files["eds-tcp-8080.json"])
        envoy.put("eds-tcp-8081.json", wanted.files["eds-tcp-8081.json"])
        envoy.put("cds.json", wanted.files["cds.json"])
        becomes(lambda: envoy.version("cds") == wanted.versions.cds, "CDS accepted")
        envoy.put("lds.json", wanted.files["lds.json"])
        becomes(lambda: ask_tcp(block[100], 8080) == "A", "the free port serves")
        assert envoy.listeners() == {f"{block[100]}:8080/TCP"}
        assert envoy.version("lds") == rendering().versions.lds
        dump = envoy.get("/config_dump?resource=dynamic_listeners")
        assert f"cannot bind '{block[100]}:8081': Address already in use" in dump
    envoy.put("lds.json", wanted.files["lds.json"])
    envoy.wait(wanted)
    assert ask_tcp(block[100], 8081) == "A"


@pytest.mark.parametrize("protocol", [TCP, UDP])
def test_a_second_envoy_on_the_same_address_takes_no_clients(
    protocol: Protocol, start: Start, nodes: Serve, block: Block
) -> None:
    """A second proxy with the same address and port fails to bind, and the first keeps every client."""
    mine, other = nodes("A"), nodes("B", first=2)
    start(rendering(serve(block[100], mine, protocol)))
    second = start(rendering())
    clash = rendering(serve(block[100], other, protocol))
    for name in ("eds-" + clash_name(protocol), "cds.json", "lds.json"):
        second.put(name, clash.files[name])
    becomes(lambda: "Address already in use" in second.log(), "the bind fails")
    requires = [ask_udp(block[100], 8080) if protocol is UDP else ask_tcp(block[100], 8080) for _ in range(20)]
    assert (set(requires), second.listeners()) == ({"A"}, set())


def clash_name(protocol: Protocol) -> str:
    """Name the EDS file of the port that both proxies want."""
    return f"{protocol.lower()}-8080.json"


@DISCOVERY
@pytest.mark.parametrize("count", [0, 1, 3])
def test_a_proxy_takes_the_watches_that_are_counted_for_it(
    discovery: Discovery, count: int, start: Start, nodes: Serve, block: Block
) -> None:
    """The inotify instances of the running process are those that the planner counts."""
    servers = nodes("A")
    ports = [serve(block[100], servers, port=8080 + number) for number in range(count)]
    assert start(rendering(*ports, discovery=discovery)).watches() == watches(discovery, count)


def test_the_admin_socket_is_for_owner_and_group(start: Start) -> None:
    """The admin interface is a unix socket of mode 0660 in the proxy's directory."""
    envoy = start(rendering())
    assert (envoy.directory / "admin.sock").stat().st_mode & 0o777 == 0o660


def test_few_statistics_are_kept(start: Start, nodes: Serve, block: Block) -> None:
    """Those that tell versions, failures and healthy backends; not a hundred a cluster."""
    envoy = start(rendering(serve(block[100], nodes("AB"))))
    names = {line.split(":")[0] for line in envoy.get("/stats").splitlines()}
    assert {"cluster.tcp-8080.membership_healthy", "listener_manager.listener_create_failure"} <= names
    assert len(names) < 60
