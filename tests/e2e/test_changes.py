"""Changes under a client at constant rate: no refused and no reset connection, through `locallb up` as a whole."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import nullcontext

import pytest

from tests.support.backends import Backend, Client, ask
from tests.support.manifests import node, port, service
from tests.support.stages import Stage
from tests.support.watching import eventually, watching

pytestmark = pytest.mark.envoy

Backends = Callable[..., Backend]


def test_a_backend_change_costs_no_request(play: Stage, backend: Backends) -> None:
    """One node goes, another comes: new requests move over, an open stream stays, nothing fails."""
    old = backend("old", "127.0.0.1")
    backend("new", "127.0.0.2", old.port)
    play.write("nodes.yaml", node("a", "127.0.0.1"))
    play.write("web.yaml", service("web", port(8080, old.port)))
    play.up()
    address, pids = play.addresses()["n/web"], play.pids()
    with socket.create_connection((address, 8080)) as stream, stream.makefile("rb") as lines:
        stream.sendall(b"1\n")
        assert lines.readline() == b"old: 1\n"
        with Client(address, 8080) as client:
            play.write("nodes.yaml", node("a", "127.0.0.1"), node("b", "127.0.0.2"))
            play.up()
            play.write("nodes.yaml", node("b", "127.0.0.2"))
            play.up()
        stream.sendall(b"2\n")
        assert lines.readline() == b"old: 2\n"
    assert client.failures == []
    assert (client.answers[0], client.answers[-1]) == ("old: hello", "new: hello")
    assert play.pids() == pids


def test_port_changes_and_neighbours_cost_no_request(play: Stage, backend: Backends) -> None:
    """Ports are added and removed, a neighbour comes and goes: the other ports' requests all succeed."""
    web, admin = backend("web"), backend("admin")
    play.write("nodes.yaml", node())
    play.write("web.yaml", service("web", port(8080, web.port)))
    play.up()
    address, pids = play.addresses()["n/web"], play.pids()
    with Client(address, 8080) as client:
        play.write("web.yaml", service("web", port(8080, web.port), port(9000, admin.port)))
        play.up()
        assert ask(address, 9000) == "admin: hello"
        play.write("neighbour.yaml", service("neighbour", port(8080, admin.port)))
        play.up()
        play.write("web.yaml", service("web", port(8080, web.port)))
        (play.manifests / "neighbour.yaml").unlink()
        play.up()
    assert client.failures == []
    assert set(client.answers) == {"web: hello"}
    assert play.pids() == pids


def test_only_allowed_clients_get_through_and_affinity_sticks(play: Stage, backend: Backends) -> None:
    """SourceRanges hold for TCP and UDP; with ClientIP affinity a client stays with its node."""
    server = backend("one", "127.0.0.1")
    backend("two", "127.0.0.2", server.port)
    play.write("nodes.yaml", node("a", "127.0.0.1"), node("b", "127.0.0.2"))
    closed = service(
        "closed", port(8080, server.port), port(8080, server.port, "UDP"), loadBalancerSourceRanges=["127.5.0.0/16"]
    )
    play.write("all.yaml", closed, service("sticky", port(8080, server.port), sessionAffinity="ClientIP"))
    play.up()
    at = play.addresses()
    assert ask(at["n/closed"], 8080, source="127.5.0.1").endswith(": hello")
    assert ask(at["n/closed"], 8080, "UDP", source="127.5.0.1").endswith(": hello")
    with pytest.raises((ConnectionResetError, AssertionError)):
        assert ask(at["n/closed"], 8080, source="127.6.0.1")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as outsider:
        outsider.bind(("127.6.0.1", 0))
        outsider.settimeout(0.5)
        outsider.sendto(b"hello", (at["n/closed"], 8080))
        with pytest.raises(TimeoutError):
            outsider.recv(100)
    answers = {source: {ask(at["n/sticky"], 8080, source=source) for _ in range(5)} for source in sources(12)}
    assert all(len(observed) == 1 for observed in answers.values())
    assert {answer for observed in answers.values() for answer in observed} == {"one: hello", "two: hello"}


def test_a_udp_port_that_a_service_of_udp_alone_gives_up_is_free_at_once(play: Stage, backend: Backends) -> None:
    """For any program and another Service at the same address; with its first TCP port it gets another proxy."""
    one = backend("one")
    first, second = (port(number, one.port, "UDP") for number in (5353, 5354))
    key = {"local-lb.dev/sharing-key": "dns"}
    play.write("nodes.yaml", node())
    play.write("a.yaml", service("a", first, second, annotations=key))
    play.up()
    address, pids = play.addresses()["n/a"], play.pids()
    play.write("a.yaml", service("a", first, annotations=key))
    play.up()
    assert play.pids() == pids
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as program:
        program.bind((address, 5354))
    play.write("b.yaml", service("b", second, annotations=key))
    play.up()
    assert play.addresses() == {"n/a": address, "n/b": address}
    assert [ask(address, number, "UDP") for number in (5353, 5354)] == ["one: hello"] * 2
    play.write("a.yaml", service("a", first, port(5353, one.port), annotations=key))
    play.up()
    assert [ask(address, 5353, protocol) for protocol in ("TCP", "UDP")] == ["one: hello"] * 2
    assert not set(pids.values()) & set(play.pids().values())


@pytest.mark.parametrize(("moves", "stays"), [("UDP", "TCP"), ("UDP", "UDP"), ("TCP", "UDP"), ("TCP", "TCP")])
def test_a_port_moves_to_another_service_in_one_update(play: Stage, backend: Backends, moves: str, stays: str) -> None:
    """From a proxy that goes on with another port, which is refused to no client."""
    one, key = backend("one"), {"local-lb.dev/sharing-key": "dns"}
    moving, staying = port(5353, one.port, moves), port(5354, one.port, stays)
    play.write("nodes.yaml", node())
    play.write("a.yaml", service("a", moving, staying, annotations=key))
    play.up()
    address = play.addresses()["n/a"]
    assert ask(address, 5353, moves) == "one: hello"
    play.write("a.yaml", service("a", staying, annotations=key), service("b", moving, annotations=key))
    with Client(address, 5354) if stays == "TCP" else nullcontext() as client:
        play.up()
    assert client is None or not client.failures
    assert play.addresses() == {"n/a": address, "n/b": address}
    assert [ask(address, number, kind) for number, kind in ((5353, moves), (5354, stays))] == ["one: hello"] * 2
    assert "Nothing changed." in play.up().out


@pytest.mark.parametrize("kept_by", ["TCP", "UDP"])
def test_a_udp_port_stays_bound_while_clients_use_its_proxy(play: Stage, backend: Backends, kept_by: str) -> None:
    """No connection and no session is ended for it. Another `up` frees it after they have ended."""
    one = backend("one")
    retained = [port(5354, one.port, kind) for kind in ("TCP", "UDP")]
    play.write("nodes.yaml", node())
    play.write("a.yaml", service("a", port(5353, one.port, "UDP"), *retained))
    play.up()
    address, pids = play.addresses()["n/a"], play.pids()
    kind = socket.SOCK_STREAM if kept_by == "TCP" else socket.SOCK_DGRAM
    with socket.socket(socket.AF_INET, kind) as client:
        client.connect((address, 5354))
        play.write("a.yaml", service("a", *retained))
        for text in (b"1\n", b"2\n", b"3\n"):
            client.sendall(text)
            assert client.recv(100) == b"one: " + text
            play.up()
            assert play.pids() == pids
            assert not _is_free(address, 5353)
    if kept_by == "TCP":
        play.up()
        assert play.pids() != pids
        assert _is_free(address, 5353)
        assert [ask(address, 5354, each) for each in ("TCP", "UDP")] == ["one: hello"] * 2


def test_watch_serves_a_udp_port_once_no_client_is_in_the_way(play: Stage, backend: Backends) -> None:
    """Of the proxy that has it from before."""
    one, key = backend("one"), {"local-lb.dev/sharing-key": "dns"}
    moving, staying = port(5353, one.port, "UDP"), port(5354, one.port)
    play.write("nodes.yaml", node())
    play.write("a.yaml", service("a", moving, staying, annotations=key))
    play.up()
    address = play.addresses()["n/a"]
    with watching(play) as watch:
        eventually(lambda: "converged" in watch.reported(), watch)  # at a start, what a file lost counts a moment later
        with socket.create_connection((address, 5354)) as client, client.makefile("rb") as lines:
            play.write("a.yaml", service("a", staying, annotations=key), service("b", moving, annotations=key))
            eventually(lambda: "it gave the port up and keeps it" in watch.reported(), watch)
            client.sendall(b"1\n")
            assert lines.readline() == b"one: 1\n"
        eventually(lambda: ask(address, 5353, "UDP") == "one: hello", watch)
    assert ask(address, 5354) == "one: hello"


def _is_free(address: str, number: int) -> bool:
    """Return whether a program can have a UDP port."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as program:
        try:
            program.bind((address, number))
        except OSError:
            return False
    return True


def sources(count: int) -> list[str]:
    return [f"127.9.0.{number}" for number in range(1, count + 1)]
