"""Orders for Gateways and Ingresses: requests meet what was ordered, whoever looks is told, and nothing is left."""

from __future__ import annotations

import http.client
import math
import re
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from tests.support import manifests
from tests.support.gateway_clients import address_of, answering, get, service
from tests.support.gateway_objects import backend, gateway, gateway_class, listener, route, rule
from tests.support.ingress_objects import ingress, ingress_class, path
from tests.support.ingress_objects import rule as ingress_rule
from tests.support.manifests import node, port
from tests.support.overrides import listeners, orders_of
from tests.support.stages import Stage, envoys, stage
from tests.support.watching import eventually, watching

pytestmark = pytest.mark.envoy

WEB = "c/gateways/shop/web"
REQUESTS, DEVIATIONS = 2000, 6.5
"""So many standard deviations off is a false alarm in ten thousand million runs."""


def write(play: Stage, number: int, **annotations: str) -> None:
    """Write a Gateway that leads to a NodePort."""
    web = gateway(listener(port=8080), metadata={"annotations": annotations})
    play.write("cluster.yaml", node(), service("one", number))
    play.write("gateway.yaml", gateway_class(), web, route(rule("/", backends=[backend("one")])))


def routes(play: Stage) -> bytes:
    """Return what the only proxy is told of routes."""
    (file,) = (play.state_home / "proxies").glob("*/rds-*.json")
    return file.read_bytes()


def test_a_share_of_requests_fails_from_the_order_to_its_end(play: Stage) -> None:
    """At once, both times, on the one connection of a client; no listener and no process is touched."""
    with answering("one") as number:
        write(play, number)
        play.up()
        address, before = address_of(play), (listeners(play), envoys(play.root))
        with closing(http.client.HTTPConnection(address, 8080, timeout=20)) as client:

            def requested() -> int:
                client.request("GET", "/")
                answer = client.getresponse()
                answer.read()
                return answer.status

            assert requested() == 200
            mine = client.sock
            done = play.run("fault", "web", "--status", "503:10%", "--delay", "1ms", "--for", "1h")
            assert (done.code, done.err) == (0, "")
            assert re.search(rf"{WEB} +- +- +- +1ms +503:10% +- +(1h 0m|59m \d+s) ", done.out)
            reported = Counter(requested() for _ in range(REQUESTS))
            assert reported.keys() == {200, 503}
            assert abs(reported[503] - REQUESTS * 0.1) <= DEVIATIONS * math.sqrt(REQUESTS * 0.1 * 0.9), reported
            sentence = (
                f"{WEB}: a fault is ordered by a command: of requests 100% are delayed by 1ms, 10% are answered 503, "
            )
            assert sentence in play.run("preview").err
            assert "serving   FaultOrdered" in play.run("status").out
            assert [notice["reason"] for notice in play.status()["shop/web"]["ordered"]] == ["FaultOrdered"]
            (row,) = play.run("fault", "--json").json
            assert (row["kind"], row["delay"]) == ("gateways", {"milliseconds": 1, "share": 100})
            assert row["status"] == {"code": 503, "share": 10}
            assert play.run("up", "--yes", "--expect-no-changes").code == 0
            assert play.run("fault", "--undo").out.endswith("No fault is ordered.\n")
            assert {requested() for _ in range(100)} == {200}
            assert client.sock is mine
        assert ((listeners(play), envoys(play.root)), orders_of(play)) == (before, [])


def test_gateway_fault_expires_with_and_without_a_running_loop(play: Stage) -> None:
    """The loop takes it back to the last byte; without a loop the proxy ends it; `destroy` leaves nothing of it."""
    with answering("one") as number:
        write(play, number)
        play.up()
        address, plain = address_of(play), routes(play)
        with watching(play) as watch:
            eventually(lambda: "converged" in watch.reported(), watch)
            assert play.run("fault", "web", "--status", "418", "--for", "15s").code == 0
            eventually(lambda: "of requests 100% are answered 418" in watch.reported(), watch)
            eventually(lambda: get(address)[0] == 200 and routes(play) == plain, watch)
            assert play.run("fault", "web", "--status", "418", "--for", "15s").code == 0
            watch.stop(signal.SIGKILL)
        eventually(lambda: play.run("fault", "--json").json == [])
        eventually(lambda: get(address)[0] == 200)
        assert routes(play) != plain
        play.run("fault", "web", "--status", "418", "--for", "1h")
        assert get(address)[0] == 418
        assert play.run("destroy", "--yes").code == 0
        play.up()
        assert (get(address_of(play))[0], routes(play)) == (200, plain)


def test_fault_annotation_of_a_gateway_applies_until_it_expires(play: Stage) -> None:
    """A command's order takes precedence; an unreadable one, or one for connections, is reported and has no effect."""
    with answering("one") as number:
        write(play, number, **{"local-lb.dev/fault": "status=503,until=2999-01-01T00:00:00Z"})
        assert (
            "a fault is ordered by its annotation local-lb.dev/fault: of requests 100% are answered 503"
            in play.up().err
        )
        address = address_of(play)
        assert get(address)[0] == 503
        play.run("fault", "web", "--status", "504")
        assert get(address)[0] == 504
        done = play.run("fault", "--undo", "web")
        assert (done.code, "annotation local-lb.dev/fault; remove that" in done.err) == (1, True)
        assert get(address)[0] == 503
        for text, reported in (
            ("status=503,until=2001-01-01T00:00:00Z", ""),
            ("status=lots,until=2999-01-01T00:00:00Z", "orders nothing, because 'lots' is no status such as 503"),
            ("refuse=1%,until=2999-01-01T00:00:00Z", "orders refuse, hang and reset for connections of Services only"),
        ):
            write(play, number, **{"local-lb.dev/fault": text})
            done = play.up()
            assert reported in " ".join(done.err.split())
            assert get(address) == (200, "one / -")


def test_requests_to_ingresses_fail_as_well(play: Stage) -> None:
    """Those that have an address together have the fault together."""
    with answering("one") as number:
        play.write("cluster.yaml", node(), service("one", number))
        entry = ingress(ingress_rule(path("/", "Prefix", "one")), name="i")
        play.write("ingress.yaml", ingress_class(), entry)
        play.configure(ingress={"class": "local", "http": 8080, "https": 8443})
        play.up()
        address = address_of(play)
        assert get(address)[0] == 200
        assert play.run("fault", "local", "--status", "429", "--for", "1h").code == 0
        assert get(address)[0] == 429
        assert play.run("fault", "--undo").code == 0
        assert get(address)[0] == 200


@contextmanager
def drainable(play: Stage) -> Iterator[tuple[str, str]]:
    """Serve a Service on two Nodes, `a` and `b`, and a Gateway before it; give their addresses."""
    with answering("a") as number, answering("b", number, "127.0.0.2"):
        play.write("nodes.yaml", node("a", "127.0.0.1"), node("b", "127.0.0.2"))
        play.write("service.yaml", manifests.service("one", port(8080, number), namespace="shop"))
        play.write(
            "gateway.yaml", gateway_class(), gateway(listener(port=8080)), route(rule("/", backends=[backend("one")]))
        )
        play.up()
        at = play.addresses()
        yield at["shop/one"], at["shop/web"]


def answers(address: str) -> set[str]:
    """Return who answers some requests, or how they fail."""
    return {get(address)[1].partition(" ")[0] for _ in range(40)}


def test_a_drain_holds_for_gateways_before_the_service_as_well(play: Stage) -> None:
    """And one of a Gateway's own for that alone; all comes back."""
    with drainable(play) as (service_at, gateway_at):
        eventually(lambda: answers(gateway_at) == answers(service_at) == {"a", "b"})
        assert play.run("drain", "shop/one", "--backend", "a").code == 0
        assert (answers(service_at), answers(gateway_at)) == ({"b"}, {"b"})
        assert play.run("up", "--yes", "--expect-no-changes").code == 0
        assert play.run("drain", "--undo").code == 0
        eventually(lambda: answers(gateway_at) == answers(service_at) == {"a", "b"})
        done = play.run("drain", "shop/web", "--backend", "b")
        assert (done.code, f"{WEB}   b" in done.out) == (0, True)
        assert answers(gateway_at) == {"a"}
        eventually(lambda: answers(service_at) == {"a", "b"})
        assert play.run("drain", "shop/web", "--undo").code == 0
        eventually(lambda: answers(gateway_at) == {"a", "b"})


def test_requests_of_a_service_without_backends_get_503(play: Stage) -> None:
    """They are answered 503, and open for connections the port stays."""
    with drainable(play) as (service_at, gateway_at):
        assert play.run("drain", "shop/one").code == 0
        assert get(gateway_at)[0] == 503
        with pytest.raises(ConnectionRefusedError):
            get(service_at)


def test_invalid_gateway_order_is_refused_without_effect() -> None:
    """One sentence each."""
    with stage() as play, answering("one") as number:
        write(play, number)
        lone = gateway(listener("bytes", 9000, "TCP"), name="bytes")
        play.write("others.yaml", lone, manifests.service("svc", port(8080, number)))
        before = play.files()
        cases: tuple[tuple[list[str], int, str], ...] = (
            (["web", "--refuse", "1%"], 1, f"{WEB} serves by routes, where only requests can be made to fail"),
            (["web", "--backend", "node-a", "--down"], 1, f"{WEB} serves by routes"),
            (["svc", "--status", "503"], 1, "c/n/svc is a Service, of which only connections can be made to fail"),
            (["bytes", "--delay", "1s"], 1, "c/gateways/shop/bytes has no listener for HTTP"),
            (["web", "--status", "99"], 2, "'99' is no status such as 503 or 503:10%"),
            (["web", "--delay", "2h"], 2, "'2h' is no delay such as 200ms or 2s:10%"),
            (["web", "--status", "503:101%"], 2, "at most 100%"),
            (["web", "--undo", "--status", "503"], 2, "--undo takes no shares"),
            (["--delay", "1s"], 2, "name the SERVICE"),
        )
        for terms, code, reported in cases:
            done = play.run("fault", *terms)
            assert (done.code, reported in " ".join(done.err.split())) == (code, True), done.err
            assert "Traceback" not in done.err
        assert play.files() == before
