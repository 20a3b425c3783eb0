"""Manifests that nobody wrote for local-lb: what charts and clusters print, with Services of every kind among it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.backends import Backend, ask
from tests.support.stages import Stage

pytestmark = pytest.mark.envoy

DATA = Path(__file__).parent / "data"


@pytest.fixture
def cluster(play: Stage, backend: Callable[..., Backend]) -> Stage:
    """Copy the manifests, with the nodePorts of real backends in them."""
    for path in sorted(DATA.iterdir()):
        text = path.read_text()
        for name in ("ingress-http", "ingress-https", "mqtt", "mqtt-ws", "coredns", "grafana"):
            if f"@{name}@" in text:
                text = text.replace(f"@{name}@", str(backend(name).port))
        (play.manifests / path.name).write_text(text)
    return play


def test_manifests_printed_by_charts_and_clusters_are_served_unmodified(cluster: Stage) -> None:
    """Every LoadBalancer Service with NodePorts answers from its own backend; others are left out or reported."""
    done = cluster.up()
    rows = cluster.status()
    assert {key: row["state"] for key, row in rows.items()} == {
        "edge/edge-ingress-nginx-controller": "serving",
        "iot/broker-mosquitto": "serving",
        "kube-system/external-dns": "serving",
        "monitoring/kps-grafana": "serving",
        "monitoring/kps-prometheus": "degraded",
    }
    at = {key: row["addresses"][0] for key, row in rows.items()}
    answers = [
        ask(at["edge/edge-ingress-nginx-controller"], 8080),
        ask(at["edge/edge-ingress-nginx-controller"], 8443),
        ask(at["iot/broker-mosquitto"], 1883),
        ask(at["iot/broker-mosquitto"], 9001),
        ask(at["kube-system/external-dns"], 5300, "TCP"),
        ask(at["kube-system/external-dns"], 5300, "UDP"),
        ask(at["monitoring/kps-grafana"], 3000),
    ]
    assert answers == [
        "ingress-http: hello",
        "ingress-https: hello",
        "mqtt: hello",
        "mqtt-ws: hello",
        "coredns: hello",
        "coredns: hello",
        "grafana: hello",
    ]
    assert rows["monitoring/kps-prometheus"]["reason"] == "NoBackends"
    assert "Traceback" not in done.out + done.err
    assert cluster.run("up", "--yes", "--expect-no-changes").code == 0
