"""Connections to pods through a real API server, with the right of deploy/rbac-relay.yaml, to a small kubelet."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from lightkube.types import PatchType

from tests.support.backends import ask, backends
from tests.support.client_kinds import NODE, POD, SLICE
from tests.support.control_plane import ControlPlane, Objects
from tests.support.ingress_rights import BINDING, ROLE, SUBJECT
from tests.support.portforward import ForwardingApi, kubelet
from tests.support.stages import Stage

pytestmark = [pytest.mark.cluster, pytest.mark.envoy]
RIGHT = Path(__file__).resolve().parents[2] / "deploy" / "rbac-relay.yaml"
PORT = 8080


@pytest.fixture
def forwarding(plane: ControlPlane, cluster: Objects, tmp_path: Path) -> Iterator[ForwardingApi]:
    """Have a Node with a kubelet in the cluster."""
    with kubelet(tmp_path) as (port, api), plane.client() as client:
        cluster.node("node-r")
        endpoint = {"status": {"daemonEndpoints": {"kubeletEndpoint": {"Port": port}}}}
        client.patch(NODE.Status, "node-r", endpoint, patch_type=PatchType.MERGE)
        yield api


@pytest.mark.parametrize("settings", [{"podRoutes": "api"}, {}], ids=["by the key", "by default"])
def test_pods_answer_through_a_real_api_server(
    forwarding: ForwardingApi, plane: ControlPlane, cluster: Objects, play: Stage, settings: dict[str, str]
) -> None:
    """By default pods that neither a route nor a NodePort leads to. Without the right, a sentence names the file."""
    metadata = {"name": "web", "namespace": "n"}
    ports = [{"port": PORT, "name": "a"}]
    spec = {"type": "LoadBalancer", "ports": ports, "allocateLoadBalancerNodePorts": False}
    cluster.service({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec})
    role, binding = yaml.safe_load_all(RIGHT.read_text())
    with backends() as make, plane.client() as client:
        pod = {"nodeName": "node-r", "containers": [{"name": "a", "image": "a"}], "terminationGracePeriodSeconds": 0}
        client.create(POD.from_dict({"metadata": {"name": "web-1", "namespace": "n"}, "spec": pod}))
        reference = {"kind": "Pod", "name": "web-1", "namespace": "n"}
        endpoint = {"addresses": ["198.51.100.7"], "conditions": {"ready": True}, "targetRef": reference}
        labels = {"kubernetes.io/service-name": "web"}
        slice_ = {
            "metadata": {"name": "web-1", "namespace": "n", "labels": labels},
            "addressType": "IPv4",
            "ports": [{"name": "a", "port": make("web-1").port, "protocol": "TCP"}],
            "endpoints": [endpoint],
        }
        client.create(SLICE.from_dict(slice_))
        play.configure(sources=[plane.source], **settings)
        refused = play.run("up", "--yes")
        assert "deploy/rbac-relay.yaml" in refused.out + refused.err
        assert (refused.code == 0) is not bool(settings)
        client.create(ROLE.from_dict(role))
        client.create(BINDING.from_dict({**binding, "subjects": [SUBJECT]}))
        try:
            play.up()
            assert [ask(play.addresses()["n/web"], PORT) for _ in range(5)] == ["web-1: hello"] * 5
            assert set(forwarding.streams) == {"web-1"}
            assert len(forwarding.requests) <= 2
        finally:
            client.delete(BINDING, "local-lb-relay")
            client.delete(ROLE, "local-lb-relay")
            client.delete(POD, "web-1", namespace="n")
