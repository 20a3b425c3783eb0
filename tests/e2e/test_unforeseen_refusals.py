"""What Envoy refuses although no check of ours knows why: the one object is left out and says so, all others serve."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support import unforeseen
from tests.support.backends import Backend, ask, backends
from tests.support.gateway_clients import Client, answering, get, service
from tests.support.gateway_objects import JsonObject, backend, gateway, gateway_class, listener, route, rule
from tests.support.ingress_objects import ingress, path
from tests.support.ingress_objects import rule as hosted
from tests.support.manifests import node, port
from tests.support.manifests import service as balancer
from tests.support.stages import Stage
from tests.support.watching import Watch, eventually

pytestmark = pytest.mark.envoy

CAUSE = "Envoy refuses its configuration: "
GOOD, BAD = (200, "one / -"), "bad.test"
OLD, NEW = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"
MANY = 20
"""Ingresses of one class."""


@pytest.fixture
def cluster(play: Stage) -> Iterator[Stage]:
    """Serve a Gateway with a good route, below a program that makes mistakes."""
    with answering("one") as one, unforeseen.mistakes():
        play.write("cluster.yaml", node(), service("one", one), service("lost", unforeseen.NODE_PORT))
        play.write("gateway.yaml", gateway_class(), gateway(listener(port=8080)), good_route())
        yield play


def good_route() -> JsonObject:
    """Make a route that is served whatever others say."""
    return route(rule("/", backends=[backend("one")]), name="good", hostnames=["a.test", "good.test"], created=OLD)


def bad_route(mistake: str, name: str = "bad") -> JsonObject:
    """Make a route with a mistake; `lost` is a backend to which no cluster can lead."""
    to = "lost" if mistake == "lost" else "one"
    return route(rule(f"/{mistake}", backends=[backend(to)]), name=name, hostnames=[BAD], created=NEW)


def address_of(play: Stage, name: str = "web") -> str:
    """Return the address of a load balancer that serves. Raises KeyError while there is none."""
    rows = play.run("status", "--json").json
    return str({row["name"]: row["addresses"][0] for row in rows if row["state"] == "serving"}[name])


def is_reported(play: Stage, name: str) -> bool:
    """Return whether a plan that is made now says that Envoy refused an object."""
    done = play.run("preview")
    return any(name in line and CAUSE in line for line in (done.out + done.err).splitlines())


@contextmanager
def watching(play: Stage) -> Iterator[Watch]:
    """Watch the stack with a program that makes mistakes."""
    watch = Watch(play, program=[sys.executable, str(Path(unforeseen.__file__))])
    try:
        yield watch
    finally:
        watch.close()


@pytest.mark.parametrize("mistake", [*unforeseen.ROUTES, "lost"])
def test_up_serves_a_gateway_without_a_route_that_envoy_refuses(cluster: Stage, mistake: str) -> None:
    """At its first start and as a change: it ends well, says which route it is and why, and remembers that."""
    cluster.write("bad.yaml", bad_route(mistake))
    done = cluster.up()
    assert f"HTTPRoute shop/bad at c/gateways/shop/web: UnsupportedValue: {CAUSE}" in done.err + done.out
    address = address_of(cluster)
    assert get(address) == GOOD
    assert get(address, f"/{mistake}", host=BAD)[0] in {404, 500}
    assert "resources unchanged" in cluster.up().out or "unchanged" in cluster.up().out
    cluster.write("bad.yaml", bad_route("fine"))
    cluster.up()
    assert get(address, "/fine", host=BAD) == (200, "one /fine -")
    pids = cluster.pids()
    with Client(address) as client:
        cluster.write("bad.yaml", bad_route(mistake))
        done = cluster.up()
    assert CAUSE in done.err + done.out
    assert set(client.answers) == {"200 one"}
    assert cluster.pids() == pids


@pytest.mark.parametrize("mode", ["per-service", "shared"])
def test_up_serves_other_services_than_one_that_envoy_refuses(play: Stage, mode: str) -> None:
    """With a proxy of its own, and behind one that both share; the one that is refused is rejected."""
    play.configure(proxies=mode)
    with backends() as make, unforeseen.mistakes():
        made = make("one")
        play.write("cluster.yaml", node(), *_balancers(made))
        done = play.run("up", "--yes")
        assert ask(play.addresses()["n/good"], 8080) == "one: hello"
        assert done.code == 0, done.out + done.err
        row = play.status()["n/bad"]
        assert (row["state"], row["reason"]) == ("rejected", "Malformed")
        assert f"c/n/bad: {CAUSE}" in row["message"]


def _balancers(made: Backend) -> list[JsonObject]:
    return [balancer("good", port(8080, made.port)), balancer("bad", port(unforeseen.PORT, made.port))]


@pytest.mark.slow
def test_watch_serves_a_gateway_whatever_comes_and_goes(cluster: Stage) -> None:
    """Each mistake comes, is told, goes; others change meanwhile, and no request fails. It survives a restart."""
    with watching(cluster) as watch:
        eventually(lambda: get(address_of(cluster)) == GOOD, watch)
        with Client(address_of(cluster)) as client:
            for number, mistake in enumerate([*unforeseen.ROUTES, "lost"]):
                cluster.write("bad.yaml", bad_route(mistake, f"bad{number}"))
                eventually(lambda name=f"bad{number}": is_reported(cluster, f"HTTPRoute shop/{name}"), watch)  # type: ignore[misc]
                other = route(rule("/", backends=[backend("one")]), name="other", hostnames=[f"o{number}.test"])
                cluster.write("other.yaml", other)
                host = f"o{number}.test"
                eventually(lambda host=host: get(address_of(cluster), host=host) == GOOD, watch)  # type: ignore[misc]
        assert set(client.answers) == {"200 one"}
    before = cluster.pids()
    with watching(cluster) as watch:
        eventually(lambda: "converged" in watch.reported(), watch)
        assert "failed" not in watch.reported()
        assert get(address_of(cluster)) == GOOD
    assert cluster.pids() == before


def test_up_serves_the_other_ingresses_of_a_class(play: Stage) -> None:
    """Twenty of them in one proxy: at its start with one that Envoy refuses, and as another one comes."""
    play.configure(ingress={"class": "local", "http": 8080, "https": 8443})
    with answering("one") as one, unforeseen.mistakes():
        play.write("cluster.yaml", node(), service("one", one))
        play.write(
            "good.yaml",
            *(ingress(hosted(path(to="one"), host=f"h{each}.test"), name=f"good{each}") for each in range(MANY)),
        )
        for mistake in unforeseen.ROUTES[:2]:
            play.write("bad.yaml", _bad_ingress(mistake))
            done = play.up()
            assert f"Ingress shop/{mistake}: {CAUSE}" in done.out + done.err
            address = address_of(play, "local")
            assert {get(address, host=f"h{each}.test") for each in range(MANY)} == {GOOD}


def _bad_ingress(mistake: str) -> JsonObject:
    return ingress(hosted(path(f"/{mistake}", to="one"), host=BAD), name=mistake)
