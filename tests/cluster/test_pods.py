"""In a cluster: what a pod of deploy/ is given, given to containers beside a real API; replicas are killed in turn."""

from __future__ import annotations

import json
import os
import shutil
import ssl
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from lightkube.generic_resource import create_global_resource, create_namespaced_resource

from tests.support.backends import Backend
from tests.support.client_kinds import CONFIG_MAP, LEASE
from tests.support.cluster_build import CHECKOUT
from tests.support.cluster_services import address, condition, made
from tests.support.containers import docker
from tests.support.control_plane import SERVICE_ACCOUNT, ControlPlane, Objects
from tests.support.docker_image import image
from tests.support.packages import wheel
from tests.support.tool_image import Served, requested, tool
from tests.support.waiting import becomes

__all__ = ["image", "tool", "wheel"]
pytestmark = [pytest.mark.cluster]
_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
_RBAC = "rbac.authorization.k8s.io"
_GLOBAL = {
    kind: create_global_resource(_RBAC, "v1", kind, f"{kind.lower()}s")
    for kind in ("ClusterRole", "ClusterRoleBinding")
}
_NAMESPACED = {
    "ServiceAccount": SERVICE_ACCOUNT,
    "ConfigMap": CONFIG_MAP,
    "Role": create_namespaced_resource(_RBAC, "v1", "Role", "roles"),
    "RoleBinding": create_namespaced_resource(_RBAC, "v1", "RoleBinding", "rolebindings"),
    "Deployment": create_namespaced_resource("apps", "v1", "Deployment", "deployments"),
}


def deployed() -> list[dict[str, Any]]:
    listed = yaml.safe_load((CHECKOUT / "deploy/kustomization.yaml").read_text())["resources"]
    return [document for name in listed for document in yaml.safe_load_all((CHECKOUT / "deploy" / name).read_text())]


@pytest.fixture
def account(plane: ControlPlane, cluster: Objects) -> Iterator[str]:
    """Create all that is deployed, and return a token of its ServiceAccount; everything goes again."""
    done = []
    client: Any = cluster.client
    for document in deployed():
        kind, name = document["kind"], document["metadata"]["name"]
        if kind in _GLOBAL and name == "local-lb":  # the cluster of tests has it, for a user of its own
            if kind == "ClusterRole":
                continue
            document["metadata"]["name"] = name = "local-lb-of-pods"
        where = {"namespace": "kube-system"} if kind in _NAMESPACED else {}
        resource: Any = {**_GLOBAL, **_NAMESPACED}[kind]
        client.create(resource.from_dict(document), **where)
        done.append((resource, name, where))
    yield _token(plane)
    for resource, name, where in done:
        client.delete(resource, name, **where)
    client.delete(LEASE, "local-lb", namespace="kube-system")


def _token(plane: ControlPlane) -> str:
    """Ask for a token as the kubelet does."""
    request = urllib.request.Request(
        f"https://{plane.address}:{plane.port}/api/v1/namespaces/kube-system/serviceaccounts/local-lb/token",
        data=json.dumps({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}).encode(),
        headers={"Authorization": f"Bearer {plane.tokens['owner']}", "Content-Type": "application/json"},
    )
    context = ssl.create_default_context(cafile=f"{plane.root}/certs/apiserver.crt")
    with urllib.request.urlopen(request, context=context) as answer:  # noqa: S310 - the cluster's own
        return str(json.load(answer)["status"]["token"])


@pytest.fixture
def pods(plane: ControlPlane, account: str, image: str, tool: str) -> Iterator[Served]:
    """Return what a pod has: its account's files, the API's variables, the configuration of the ConfigMap."""
    (stack,) = (document for document in deployed() if document["kind"] == "ConfigMap")
    reported = yaml.safe_load(stack["data"]["Pulumi.dev.yaml"])["config"]
    config = {key.partition(":")[2]: value for key, value in reported.items()}
    config["sources"][0]["kubernetes"]["loopbackBackends"] = True  # this cluster's Node is processes on this host
    config["leaderElection"].update({"leaseDuration": 6, "renewDeadline": 4, "retryPeriod": 0.5})
    place = Served(image, config)
    files = place.root / "account"
    files.mkdir()
    shutil.copy(f"{plane.root}/certs/apiserver.crt", files / "ca.crt")
    (files / "token").write_text(account)
    (files / "namespace").write_text("kube-system")
    for path in (files, *files.iterdir()):
        os.chown(path, *_owner(place.root))
    api = (f"KUBERNETES_SERVICE_HOST={plane.address}", f"KUBERNETES_SERVICE_PORT={plane.port}")
    place.more = ("--volume", f"{files}:{_ACCOUNT}:ro", *(word for pair in api for word in ("--env", pair)))
    try:
        yield place
        place.run(tool, "destroy", "--yes")
    finally:
        shutil.rmtree(place.root)


def _owner(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_uid, status.st_gid


@pytest.mark.docker
@pytest.mark.root(only="can make a root file system with mmdebstrap")
def test_replicas_are_killed_in_turn_and_no_request_fails(
    cluster: Objects, tool: str, pods: Served, backend: Callable[..., Backend]
) -> None:
    """Each has another host's name and process ids, as pods have; the Lease names who serves, and statuses go on."""
    made(cluster, backend, "web")
    running = {name: pods.start(tool, *_as_pod(name)) for name in ("local-lb-a", "local-lb-b")}
    try:
        becomes(lambda: bool((cluster.read("web") or {})["status"].get("loadBalancer", {}).get("ingress")))
        at = address(cluster, "web")
        with requested(at, 8080, "web: hello") as failures:
            for turn in range(2):
                leader = _leader(cluster)
                docker("rm", "--force", running.pop(leader))
                made(cluster, backend, f"more-{turn}", 8081 + turn)
                becomes(lambda: _leader(cluster) not in {"", leader})  # noqa: B023 - awaited in this turn
                becomes(lambda: _serves(cluster, f"more-{turn}"))  # noqa: B023 - likewise
                running[leader] = pods.start(tool, *_as_pod(leader))
        assert failures == []
        assert address(cluster, "web") == at
    finally:
        for container in running.values():
            docker("rm", "--force", container)


def _as_pod(name: str) -> tuple[str, ...]:
    """Return what makes a container another machine's: process ids of its own, and the pod's name."""
    return ("--pid", "", "--hostname", name, "--env", f"POD_NAME={name}", "--env", "POD_NAMESPACE=kube-system")


def _leader(cluster: Objects) -> str:
    """Return the pod that holds the Lease; empty for nobody."""
    leases = {lease["metadata"]["name"]: lease["spec"] for lease in cluster.client.list(LEASE, namespace="kube-system")}
    return str(leases.get("local-lb", {}).get("holderIdentity") or "").partition("_")[0]


def _serves(cluster: Objects, name: str) -> bool:
    try:
        return bool(condition(cluster, name)["status"] == "True")
    except ValueError:
        return False
