"""ClusterIP Services by their addresses and by their names in the cluster, with a real Envoy and a small API."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.backends import ask, backends
from tests.support.dns_questions import addresses
from tests.support.fake_api import Api, served, source, versioned
from tests.support.stages import Stage, stage
from tests.support.watching import eventually, watching

pytestmark = pytest.mark.envoy
PORT = 8080


@pytest.fixture
def cluster() -> Iterator[tuple[Stage, Api]]:
    """Return a stack that serves every ClusterIP Service of a running cluster."""
    with stage() as made, served(made.root) as (api, access):
        made.configure(
            sources=[source(access)],
            services={"types": ["ClusterIP"]},
            backends="pods",
            dns={"zones": [{"zone": "cluster.local", "embedded": f"{made.at(200)}:5300"}]},
        )
        yield made, api


def cluster_ip(name: str, kind: str = "ClusterIP", **spec: object) -> dict[str, Any]:
    """Make a Service as the API has it."""
    metadata = {"name": name, "namespace": "n", "creationTimestamp": "2026-01-01T00:00:00Z"}
    item = {"metadata": metadata, "spec": {"type": kind, "ports": [{"port": PORT, "name": "a"}], **spec}}
    return versioned({"apiVersion": "v1", "kind": "Service", **item})


def pod(name: str, port: int) -> dict[str, Any]:
    """Make the EndpointSlice of a Service with one pod."""
    labels = {"kubernetes.io/service-name": name}
    return versioned(
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {"name": f"{name}-1", "namespace": "n", "labels": labels},
            "addressType": "IPv4",
            "ports": [{"name": "a", "port": port, "protocol": "TCP"}],
            "endpoints": [{"addresses": ["127.0.0.1"], "conditions": {"ready": True}}],
        }
    )


def test_any_service_is_served_without_a_word_to_its_cluster(cluster: tuple[Stage, Api]) -> None:
    """With a headless one; the key's removal removes exactly them."""
    play, api = cluster
    with backends() as make:
        api.services = [cluster_ip("web"), cluster_ip("db", clusterIP="None")]
        api.others["endpointslices"] = [pod("web", make("web").port), pod("db", make("db").port)]
        play.up()
        found = play.addresses()
        assert set(found) == {"n/web", "n/db"}
        for name in ("web", "db"):
            assert ask(found[f"n/{name}"], PORT).startswith(name)
            server = (play.at(200), 5300)
            assert addresses(server, f"{name}.n.svc.cluster.local") == [found[f"n/{name}"]]
        eventually(lambda: {row["state"] for row in play.status().values()} == {"serving"})
        assert play.run("up", "--yes", "--expect-no-changes").code == 0
        assert (api.patched, api.reported, api.written) == ([], [], [])
        play.configure(sources=[source_of(play)])
        play.up()
        assert (play.status(), api.patched, api.reported) == ({}, [], [])


def source_of(play: Stage) -> dict[str, Any]:
    """Name the cluster again."""
    return {"kubernetes": {"name": "c", "kubeconfig": str(play.root / "kubeconfig"), "loopbackBackends": True}}


def test_every_service_is_served_for_a_while(cluster: tuple[Stage, Api]) -> None:
    """By an option of `watch`, which says at its end what remains; the next `up` takes it away."""
    play, api = cluster
    play.configure(sources=[source_of(play)], backends="pods")
    with backends() as make:
        api.services = [cluster_ip("web")]
        api.others["endpointslices"] = [pod("web", make("web").port)]
        play.up()
        assert play.status() == {}
        with watching(play, "--all-services") as watch:
            eventually(lambda: ask(play.addresses()["n/web"], PORT).startswith("web"), watch)
            address = play.addresses()["n/web"]
        assert "1 Service of --all-services goes on being served; the next `" in watch.reported()
        assert ask(address, PORT).startswith("web")
        play.up()
        assert play.status() == {}
        with pytest.raises(OSError, match="refused"):
            ask(address, PORT)
        assert (api.patched, api.reported, api.written) == ([], [], [])
