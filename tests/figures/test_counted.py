"""What `top` tells is what a load generator counted by itself, also where `watch` was killed in between."""

from __future__ import annotations

import random
import signal
import socket
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from tests.figures.counted import reported, speak
from tests.support.backends import ask, backends
from tests.support.gateway_clients import service as node_port_service
from tests.support.gateway_objects import gateway, gateway_class, route
from tests.support.http_traffic import Client, Echo
from tests.support.manifests import node, port, service
from tests.support.stages import stage
from tests.support.watching import Watch, eventually

pytestmark = pytest.mark.envoy

REQUESTS, CLIENTS, SEED = 10_000, 4, 20261122
CONNECTIONS, DATAGRAMS = 200, 50


def has_converged(watch: Watch) -> bool:
    """Return whether the loop has said so."""
    return "converged" in watch.reported()


def flood(address: str, failing: list[bool]) -> None:
    """Ask on one connection; where it is to fail the backend says 503."""
    client = Client(address, 80)
    for fails in failing:
        status = client.ask("/status/503" if fails else "/").status
        assert status == (503 if fails else 200)
    client.close()


@pytest.mark.slow
def test_requests_and_failures_are_those_of_the_clients() -> None:
    """10,000 requests to a Gateway, of which some fail, while the loop is killed and started again."""
    chance = random.Random(SEED)
    shares = [[chance.random() < 0.07 for _ in range(REQUESTS // CLIENTS)] for _ in range(CLIENTS)]
    with stage() as play, Echo("a", "127.0.0.1") as echo:
        play.configure(trafficDetails=True)
        play.write("n.yaml", node(), node_port_service("api", echo.backend.port))
        play.write("g.yaml", gateway_class(), gateway(), route())
        play.up()
        (address,) = play.addresses().values()
        with ThreadPoolExecutor(CLIENTS) as clients:
            loads = [clients.submit(flood, address, share) for share in shares]
            for _ in range(3):
                watch = Watch(play)
                eventually(partial(has_converged, watch), watch)
                watch.stop(signal.SIGKILL)
            for load in loads:
                load.result()
        row = reported(play, "web")
        assert (row["requests"], row["failed"]) == (REQUESTS, sum(map(sum, shares)))
        assert len(echo.requested) == REQUESTS
        assert row["refused"] == 0
        assert 0 <= row["latencies"]["p50"] <= row["latencies"]["p99"]
        assert row["backends"][0]["requests"] == REQUESTS


@pytest.mark.parametrize("proxies", ["per-service", "shared"])
def test_connections_and_bytes_are_those_of_the_clients(proxies: str) -> None:
    """Over TCP and UDP, whoever else has the proxy; `up` itself connects once to prove that a new port serves."""
    with stage() as play, backends() as make:
        backend = make("b")
        play.configure(trafficDetails=True, proxies=proxies)
        ports = port(8080, backend.port), port(8081, backend.port, "UDP")
        play.write("s.yaml", node(), service("web", *ports), service("other", port(8080, backend.port)))
        play.up()
        address, other = play.addresses()["n/web"], reported(play, "n/other")
        probes = play.run("top", "--once", "--json", "n/web").json["services"][0]["connections"]
        answered = [speak(address, 2 + number % 900) for number in range(CONNECTIONS)]
        heard = [len(ask(address, 8081, "UDP", "x" * 9)) for _ in range(DATAGRAMS)]
        eventually(lambda: play.run("top", "--once", "--json", "n/web").json["services"][0]["open"] == 0)
        tcp, udp = play.run("top", "--once", "--json", "n/web").json["services"]
        assert (tcp["ports"], udp["ports"]) == (["8080/TCP"], ["8081/UDP"])
        assert (tcp["connections"] - probes, tcp["bytesOut"]) == (CONNECTIONS, sum(answered))
        assert tcp["bytesIn"] == sum(2 + number % 900 for number in range(CONNECTIONS))
        assert (udp["bytesIn"], udp["bytesOut"]) == (DATAGRAMS * 9, sum(heard))
        assert reported(play, "n/other") == other


def test_without_details_connections_are_counted_all_the_same_and_details_come_without_a_cut_connection() -> None:
    """Envoy keeps counts by backend in any case; bytes are counted from when the stack asks for them."""
    with stage() as play, backends() as make:
        play.write("s.yaml", node(), service("web", port(8080, make("b").port)))
        play.up()
        address, pids = play.addresses()["n/web"], play.pids()
        probes = reported(play, "web")["connections"]
        assert [speak(address, 9) for _ in range(3)] == [12] * 3
        row = reported(play, "web")
        assert (row["connections"] - probes, row["bytesIn"], row["latencies"]) == (3, None, None)
        assert "local-lb:trafficDetails" in play.run("top", "--once").out
        with socket.create_connection((address, 8080), 10) as retained, retained.makefile("rb") as lines:
            retained.sendall(b"one\n")
            assert lines.readline() == b"b: one\n"
            play.configure(trafficDetails=True)
            play.up()
            retained.sendall(b"two\n")
            assert lines.readline() == b"b: two\n"
        assert play.pids() == pids
        assert speak(address, 9) == 12
        assert reported(play, "web")["bytesIn"] == 9
        assert "8080/TCP" in play.run("status", "--traffic").out


def test_a_proxy_that_is_gone_is_reported_and_counts_nothing() -> None:
    """Its Service is still there, as a row without figures."""
    with stage() as play, backends() as make:
        play.write("s.yaml", node(), service("web", port(8080, make("b").port)))
        assert reported(play, "web")["answers"] is False
        assert "c/n/web has no proxy that answers" in play.run("top", "--once").out
        assert "there is no load balancer 'nobody'; name one" in play.run("top", "--once", "nobody").err
