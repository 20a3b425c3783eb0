"""Whether a backend takes connections decides what is told of a port, by real proxies: `status`, log and metrics."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from locallb.planning.endpoints import KUBE_PROXY_PORT
from tests.support.backends import Backend
from tests.support.fake_api import Api, served, source, versioned
from tests.support.manifests import node, port, service
from tests.support.servers import QuietHandler, QuietServer, in_thread
from tests.support.stages import Stage
from tests.support.watching import answers, eventually, get, watching

pytestmark = pytest.mark.envoy
Backends = Callable[..., Backend]
PORT, FINE = 9000, 9001
"""Where the backends of the two Services are, at an address of the stage's own."""
DOWN = ("degraded", "BackendsDown")


@pytest.fixture
def both(play: Stage, backend: Backends) -> Stage:
    """Write two Services: nothing listens behind `web`."""
    at = play.at(40)
    backend("fine", at, FINE)
    play.write("s.yaml", node(address=at), service("web", port(8080, PORT)), service("fine", port(8080, FINE)))
    return play


@contextmanager
def kube_proxy(address: str) -> Iterator[None]:
    """Answer for a Node as kube-proxy does on its health port."""

    class Healthy(QuietHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

    with in_thread(QuietServer((address, KUBE_PROXY_PORT), Healthy)):
        yield


def reported(play: Stage, name: str = "web") -> tuple[str, str]:
    """Return the state and the reason of a Service."""
    row = play.status()[f"n/{name}"]
    return row["state"], row["reason"]


def test_port_serves_once_a_backend_takes_connections_and_no_longer(both: Stage, backend: Backends) -> None:
    """Nothing else changes: the address, the proxy, the other Service."""
    both.up()
    addresses, pids = both.addresses(), both.pids()
    assert (reported(both), reported(both, "fine")) == (DOWN, ("serving", ""))
    assert f"its backend {both.at(40)}:{PORT} takes no connection" in both.status()["n/web"]["message"]
    opened = backend("web", both.at(40), PORT)
    eventually(lambda: reported(both) == ("serving", ""))
    opened.close()
    eventually(lambda: reported(both) == DOWN)
    assert both.run("up", "--yes", "--expect-no-changes").code == 0
    assert (both.addresses(), both.pids()) == (addresses, pids)


def test_shared_proxy_tells_of_each_service_by_itself(both: Stage) -> None:
    """Both are in one Envoy."""
    both.configure(proxies="shared")
    both.up()
    assert (reported(both), reported(both, "fine")) == (DOWN, ("serving", ""))


def test_watch_tells_when_backends_go_and_come(both: Stage, backend: Backends) -> None:
    """In its log and its metrics, without a change of any object."""
    down = 'locallb_service_problems{reason="BackendsDown"} 1.0'
    with watching(both, "--metrics", "127.0.0.1:0") as watch:
        eventually(lambda: "degraded BackendsDown: c/n/web port 8080/TCP: its backend" in watch.reported(), watch)
        eventually(lambda: down in get(watch, "/metrics")[1], watch)
        backend("web", both.at(40), PORT)
        eventually(lambda: "serving: c/n/web" in watch.reported(), watch)
        eventually(lambda: 'locallb_services{state="serving"} 2.0' in get(watch, "/metrics")[1], watch)


def test_node_port_behind_a_working_kube_proxy_is_tried_once_a_client_failed(
    play: Stage, backend: Backends, tmp_path: Path
) -> None:
    """The Node's check passes whatever is behind."""
    at = play.at(40)
    with served(tmp_path) as (api, access), kube_proxy(at):
        play.configure(sources=[source(access)])
        api.nodes = [versioned(node(address=at))]
        api.services = [versioned(service("web", port(8080, PORT)))]
        play.up()
        (address,) = play.addresses().values()
        with suppress(ConnectionError), socket.create_connection((address, 8080), 10) as client:
            client.recv(1)
        eventually(lambda: reported(play) == DOWN)
        opened = backend("web", at, PORT)
        eventually(lambda: reported(play) == ("serving", ""))
        opened.close()
        eventually(lambda: reported(play) == DOWN)


def test_cluster_is_told_when_backends_go_and_come(play: Stage, backend: Backends, tmp_path: Path) -> None:
    """By the condition and an event; the address stays."""
    at = play.at(40)
    with served(tmp_path) as (api, access), kube_proxy(at):
        play.configure(sources=[source(access)])
        api.nodes = [versioned(node(address=at))]
        api.services = [versioned(service("web", port(8080, PORT)))]

        def serving() -> tuple[str, str, str]:
            status = api.services[0]["status"]
            (entry,) = status["loadBalancer"]["ingress"]
            (condition,) = status["conditions"]
            return entry["ip"], condition["status"], condition["reason"]

        def warned() -> bool:
            return any(
                reported["type"] == "Warning" and reported["note"].startswith("BackendsDown: ")
                for reported in api.reported
            )

        def fails(address: str) -> None:
            with suppress(ConnectionError), socket.create_connection((address, 8080), 10) as client:
                client.recv(1)

        opened = backend("web", at, PORT)
        with watching(play) as watch:
            eventually(lambda: serving()[1:] == ("True", "Serves"), watch)
            address = serving()[0]
            assert answers(address, 8080, "web")
            opened.close()
            fails(address)
            eventually(lambda: serving() == (address, "False", "BackendsDown"), watch)
            eventually(warned, watch)
            backend("web", at, PORT)
            eventually(lambda: serving() == (address, "True", "Serves"), watch)


@contextmanager
def nothing(_address: str) -> Iterator[None]:
    """Answer for no Node, so that NodePorts are checked by connecting."""
    yield


def written(api: Api) -> list[str]:
    """Return what was written of whether a Service serves, in order."""
    conditions = [
        condition for _, _, patch in api.patched for condition in patch.get("status", {}).get("conditions") or ()
    ]
    return [f"{each['status']} {each['reason']}" for each in conditions if each["type"] == "local-lb.dev/Serving"]


@pytest.mark.parametrize("node_check", [kube_proxy, nothing])
@pytest.mark.parametrize("proxies", ["shared", "per-service"])
def test_nothing_is_said_to_serve_before_a_backend_takes_a_connection(
    play: Stage, backend: Backends, tmp_path: Path, node_check: Callable[[str], Any], proxies: str
) -> None:
    """The address is published at once; what is known of it stands over restarts, until the proxy says otherwise."""
    at = play.at(40)
    with served(tmp_path) as (api, access), node_check(at):
        play.configure(sources=[source(access)], proxies=proxies)
        api.nodes = [versioned(node(address=at))]
        api.services = [versioned(service("web", port(8080, PORT)))]
        with watching(play) as watch:
            eventually(lambda: written(api) == ["Unknown Waiting", "False BackendsDown"], watch)
        address = api.services[0]["status"]["loadBalancer"]["ingress"][0]["ip"]
        assert [
            patch["status"]["loadBalancer"]["ingress"][0]["ip"] for _, _, patch in api.patched if "status" in patch
        ] == [
            address,
            address,
        ]
        play.up()
        with watching(play) as watch:
            eventually(lambda: "converged" in watch.reported(), watch)
            assert not any(event["type"] == "Normal" for event in api.reported)
            backend("web", at, PORT)
            eventually(lambda: len(written(api)) > 2, watch)
            eventually(lambda: any(event["note"].startswith("serves 8080/TCP") for event in api.reported), watch)
        assert written(api)[2:] == ["True Serves"]
        assert answers(address, 8080, "web")


def test_what_serves_from_the_beginning_is_written_once(play: Stage, backend: Backends, tmp_path: Path) -> None:
    """The proof finds its backend."""
    at = play.at(40)
    backend("web", at, PORT)
    with served(tmp_path) as (api, access), kube_proxy(at):
        play.configure(sources=[source(access)])
        api.nodes = [versioned(node(address=at))]
        api.services = [versioned(service("web", port(8080, PORT)))]
        play.up()
        with watching(play) as watch:
            eventually(lambda: "converged" in watch.reported(), watch)
        assert written(api) == ["True Serves"]


@pytest.mark.parametrize("says_more", [False, True])
def test_up_asks_the_proxy_what_was_published_of_it(
    play: Stage, backend: Backends, tmp_path: Path, *, says_more: bool
) -> None:
    """Without a watch nothing else would. A program that says more reads by itself, as it does for the Pulumi CLI."""
    at = play.at(40)
    with served(tmp_path) as (api, access):
        play.configure(sources=[source(access)])
        api.nodes = [versioned(node(address=at))]
        api.services = [versioned(service("web", port(8080, PORT)))]
        play.up()
        assert written(api) == ["Unknown Waiting"]
        with watching(play) as watch:
            eventually(lambda: "False BackendsDown" in written(api), watch)
        backend("web", at, PORT)
        eventually(lambda: reported(play) == ("serving", ""))
        if says_more:
            program = "from locallb.program import serve\n\nreading, plan = serve()\nassert plan.placements\n"
            (play.root / "__main__.py").write_text(program)
        play.up()
        assert written(api) == ["Unknown Waiting", "False BackendsDown", "True Serves"]
