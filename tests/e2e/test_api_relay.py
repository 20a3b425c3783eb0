"""Services of a cluster that is reached through its API server alone, with a real Envoy and a small API."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from locallb.engine.state.resource import ResourceState
from tests.support import manifests
from tests.support.backends import ask, backends
from tests.support.fake_api import Api, node, served, source, versioned
from tests.support.stages import Stage, stage, stated
from tests.support.waiting import becomes
from tests.support.watching import eventually, watching

pytestmark = pytest.mark.envoy
PORT = 8080
SILENT = "127.91.9.1"


@pytest.fixture
def cluster() -> Iterator[tuple[Stage, Api]]:
    """Return a stack with a running cluster that has no Node within reach, and manifests with one that is."""
    with stage() as made, served(made.root) as (api, access):
        made.configure(sources=[source(access), {"manifests": "manifests", "name": "near"}], podRoutes="api")
        made.write("node.yaml", manifests.node())
        try:
            yield made, api
        finally:
            made.run("destroy", "--yes")


def balancer(name: str, *protocols: str) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "n", "creationTimestamp": "2026-01-01T00:00:00Z"}
    ports = [{"port": PORT, "name": each.lower(), "protocol": each, "nodePort": 30080} for each in protocols]
    return versioned(
        {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": {"type": "LoadBalancer", "ports": ports}}
    )


def pod(service: str, number: int, port: int, protocol: str = "TCP") -> dict[str, Any]:
    """Make the EndpointSlice of one pod of a Service, at an address that leads nowhere."""
    reference = {"kind": "Pod", "name": f"{service}-{number}", "namespace": "n"}
    endpoint = {"addresses": [f"198.51.100.{number}"], "conditions": {"ready": True}, "targetRef": reference}
    return versioned(
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {
                "name": f"{service}-{number}",
                "namespace": "n",
                "labels": {"kubernetes.io/service-name": service},
            },
            "addressType": "IPv4",
            "ports": [{"name": protocol.lower(), "port": port, "protocol": protocol}],
            "endpoints": [endpoint],
        }
    )


def relays(play: Stage) -> list[ResourceState]:
    return stated(play.root, "locallb:index:ApiRelay")


def test_pods_answer_through_the_api_server(cluster: tuple[Stage, Api]) -> None:
    """Two pods of a Service, a third that comes, one that goes; the relay ends with the stack."""
    play, api = cluster
    with backends() as make:
        api.services = [balancer("web", "TCP")]
        slices = [pod("web", number, make(f"web-{number}").port) for number in (1, 2, 3)]
        api.others["endpointslices"] = slices[:2]
        play.up()
        address = play.addresses()["n/web"]
        eventually(lambda: play.status()["n/web"]["state"] == "serving")
        assert {ask(address, PORT).partition(":")[0] for _ in range(20)} == {"web-1", "web-2"}
        (relay,) = relays(play)
        pid = int(str(relay.outputs["pid"]))
        assert "Relay" not in play.up().out
        api.others["endpointslices"] = slices[1:]
        play.up()
        eventually(lambda: {ask(address, PORT).partition(":")[0] for _ in range(20)} == {"web-2", "web-3"})
        assert relays(play)[0].outputs["pid"] == relay.outputs["pid"]
        assert play.run("destroy", "--yes").code == 0
        becomes(lambda: not Path(f"/proc/{pid}").exists())


def test_a_killed_relay_is_started_again(cluster: tuple[Stage, Api]) -> None:
    """Meanwhile Services that don't need it keep their connections, and all keep their proxies."""
    play, api = cluster
    with backends() as make:
        api.services = [balancer("web", "TCP")]
        api.others["endpointslices"] = [pod("web", 1, make("web").port)]
        play.write("beside.yaml", manifests.service("beside", manifests.port(PORT, make("beside").port)))
        with watching(play):
            eventually(lambda: {row["state"] for row in play.status().values()} == {"serving"})
            with socket.create_connection((play.addresses()["n/beside"], PORT), timeout=60) as beside:
                assert answered(beside) == b"beside: hello\n"
                check_repair(play)
                assert answered(beside) == b"beside: hello\n"


def check_repair(play: Stage) -> None:
    address, proxies, (relay,) = play.addresses()["n/web"], play.pids(), relays(play)
    os.kill(int(str(relay.outputs["pid"])), signal.SIGKILL)
    eventually(lambda: ask(address, PORT).startswith("web"))
    eventually(lambda: relays(play)[0].outputs["pid"] != relay.outputs["pid"])
    assert play.pids() == proxies


def answered(connection: socket.socket) -> bytes:
    connection.sendall(b"hello\n")
    return connection.recv(100)


def test_udp_is_refused_with_a_sentence(cluster: tuple[Stage, Api]) -> None:
    play, api = cluster
    api.services = [balancer("dns", "UDP")]
    api.others["endpointslices"] = [pod("dns", 1, 53, "UDP")]
    done = play.run("up", "--yes")
    assert "n/dns port 8080/UDP" in done.out
    assert "through the API server only, which forwards no UDP" in done.out
    assert relays(play) == []


def test_a_lacking_right_is_named(cluster: tuple[Stage, Api]) -> None:
    play, api = cluster
    api.forbidden.add("create pods")
    with backends() as make:
        api.services = [balancer("web", "TCP")]
        api.others["endpointslices"] = [pod("web", 1, make("web").port)]
        done = play.run("up", "--yes")
    assert done.code != 0
    assert "create pods/portforward) in n: give it the right of deploy/rbac-relay.yaml" in done.out + done.err


@contextmanager
def silent_node() -> Iterator[dict[str, Any]]:
    """Return a Node that answers no connection: the queues of its ports are full."""
    with ExitStack() as stack:
        for port in (10256, 10250, 30080):
            listening = stack.enter_context(socket.socket())
            listening.bind((SILENT, port))
            listening.listen(0)
            for _ in range(2):
                waiting = stack.enter_context(socket.socket())
                waiting.setblocking(False)
                waiting.connect_ex((SILENT, port))
        address = {"type": "InternalIP", "address": SILENT}
        yield {"metadata": {"name": "far", "resourceVersion": "1"}, "status": {"addresses": [address]}}


def test_without_a_key_only_a_cluster_of_which_no_node_answers_takes_the_api_server(tmp_path: Path) -> None:
    """Another one keeps its NodePorts; where the right lacks, a sentence names it, and nothing fails."""
    with stage() as play, backends() as make, ExitStack() as stack:
        apis: dict[str, Api] = {}
        entries = []
        for name in ("far", "near"):
            (tmp_path / name).mkdir()
            apis[name], access = stack.enter_context(served(tmp_path / name))
            entries.append({"kubernetes": {**source(access)["kubernetes"], "name": name}})
            apis[name].services = [balancer(name, "TCP")]
            apis[name].others["endpointslices"] = [pod(name, 1, make(f"{name}-1").port)]
        apis["far"].nodes, apis["near"].nodes = [stack.enter_context(silent_node())], [node("near")]
        play.configure(sources=entries)
        stack.callback(play.run, "destroy", "--yes")
        apis["far"].forbidden.add("create pods")
        assert "far: none of its Nodes answers this host; with the right to create pods/portforward" in play.up().out
        assert relays(play) == []
        apis["far"].forbidden.clear()
        shown = play.up().out
        assert "far: none of its Nodes answers this host, so connections go to pods through the API server" in shown
        status = play.status()
        assert [status[f"n/{name}"]["ports"][0]["via"] for name in apis] == ["api", "nodePorts"]
        assert ask(status["n/far"]["addresses"][0], PORT).startswith("far-1")
