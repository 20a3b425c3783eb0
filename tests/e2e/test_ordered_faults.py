"""A fault that an annotation orders: told wherever somebody looks, met by clients, and gone with the annotation."""

from __future__ import annotations

import signal
import socket
from typing import Any

import pytest

from tests.support.backends import ask, backends
from tests.support.manifests import node, port, service
from tests.support.overrides import FAILS, answer
from tests.support.stages import envoys, stage
from tests.support.watching import eventually, watching

pytestmark = pytest.mark.envoy

ALL = "refuse=100%,until=2999-01-01T00:00:00Z"
TOLD = "a fault is ordered by its annotation local-lb.dev/fault: of new TCP connections 100% are refused, until 2999-"


def web(node_port: int, fault: str = "", **more: Any) -> dict[str, Any]:  # noqa: ANN401
    annotations = {"local-lb.dev/fault": fault} if fault else {}
    return service("web", port(8080, node_port), port(8081, node_port, "UDP"), annotations=annotations, **more)


@pytest.mark.parametrize("proxies", ["per-service", "shared"])
def test_a_fault_comes_is_reported_and_goes(proxies: str) -> None:
    """Open connections, UDP and other Services never notice; processes stay."""
    with stage() as play, backends() as make:
        number = make("b").port
        play.configure(proxies=proxies)
        play.write("s.yaml", node(), web(number), service("other", port(8080, number)))
        play.up()
        address, pids = play.addresses()["n/web"], envoys(play.root)
        with socket.create_connection((address, 8080), 10) as client, client.makefile("rb") as lines:
            client.sendall(b"one\n")
            assert lines.readline() == b"b: one\n"
            play.write("s.yaml", node(), web(number, ALL), service("other", port(8080, number)))
            assert TOLD in play.run("preview").err + play.run("preview").out
            assert TOLD in play.up().err
            assert answer(address) in FAILS
            assert TOLD in play.run("status").err
            client.sendall(b"two\n")
            assert lines.readline() == b"b: two\n"
        assert ask(address, 8081, "UDP") == "b: hello"
        assert ask(play.addresses()["n/other"], 8080) == "b: hello"
        assert play.run("up", "--yes", "--expect-no-changes").code == 0
        play.write("s.yaml", node(), web(number), service("other", port(8080, number)))
        assert TOLD not in play.up().err
        assert answer(address) == "b: hello"
        assert envoys(play.root) == pids


def test_a_fault_that_cannot_be_read_is_reported_and_stops_nothing() -> None:
    """Whoever misspells an order still has a Service."""
    with stage() as play, backends() as make:
        play.write("s.yaml", node(), web(make("b").port, "refuse=lots"))
        play.up()
        assert answer(play.addresses()["n/web"]) == "b: hello"
        reported = " ".join(play.run("status").err.split())
        assert (
            "the annotation local-lb.dev/fault orders nothing, because 'lots' is not a percentage (for example 10%"
            in reported
        )


def test_the_loop_orders_and_ends_it_and_its_own_end_changes_neither() -> None:
    """Killed between the two."""
    with stage() as play, backends() as make:
        number = make("b").port
        play.write("s.yaml", node(), web(number))
        with watching(play) as watch:
            eventually(lambda: play.addresses() and answer(play.addresses()["n/web"]) == "b: hello", watch)
            address = play.addresses()["n/web"]
            play.write("s.yaml", node(), web(number, ALL))
            eventually(lambda: answer(address) in FAILS, watch)
            eventually(lambda: TOLD in watch.reported(), watch)
            watch.stop(signal.SIGKILL)
        assert answer(address) in FAILS
        play.write("s.yaml", node(), web(number))
        with watching(play) as watch:
            eventually(lambda: answer(address) == "b: hello", watch)
