"""In a shoot's control plane: kubeconfig and token of Gardener's in files, with no more rights than Gardener gives."""

from __future__ import annotations

import base64
import json
import ssl
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from lightkube import Client
from lightkube.generic_resource import create_global_resource, create_namespaced_resource

from tests.support.backends import Backend
from tests.support.client_kinds import CONFIG_MAP, LEASE, SECRET
from tests.support.cluster_build import CHECKOUT
from tests.support.cluster_services import address, made
from tests.support.control_plane import SERVICE_ACCOUNT, ControlPlane, Objects
from tests.support.stages import stage
from tests.support.watching import answers, eventually, watching

pytestmark = [pytest.mark.cluster, pytest.mark.envoy]

CONTROLLER, SYSTEM = "cloud-controller-manager", "kube-system"
MANIFEST = CHECKOUT / "examples" / "gardener" / "control-plane.yaml"
_RBAC = "rbac.authorization.k8s.io"
_ROLE, _ROLE_BINDING = (
    create_namespaced_resource(_RBAC, "v1", kind, f"{kind.lower()}s") for kind in ("Role", "RoleBinding")
)
_BINDING = create_global_resource(_RBAC, "v1", "ClusterRoleBinding", "clusterrolebindings")
_DEPLOYMENT = create_namespaced_resource("apps", "v1", "Deployment", "deployments")
_LEASES = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"]}
RULES = [
    {**_LEASES, "verbs": ["create", "list", "watch"]},
    {**_LEASES, "resourceNames": [CONTROLLER], "verbs": ["get", "update"]},
]
"""What Gardener gives in kube-system; elsewhere Kubernetes' own role of service controllers."""


@pytest.fixture
def account(cluster: Objects) -> Iterator[Client]:
    """Make the controller's account, with its rights; returns the cluster's owner."""
    client: Any = cluster.client
    subjects = [{"kind": "ServiceAccount", "name": CONTROLLER, "namespace": SYSTEM}]
    metadata = {"metadata": {"name": CONTROLLER}}
    present = {"namespace": SYSTEM}
    client.create(SERVICE_ACCOUNT.from_dict(metadata), **present)
    client.create(_ROLE.from_dict({**metadata, "rules": RULES}), **present)
    role = {"apiGroup": _RBAC, "kind": "Role", "name": CONTROLLER}
    client.create(_ROLE_BINDING.from_dict({**metadata, "roleRef": role, "subjects": subjects}), **present)
    role = {"apiGroup": _RBAC, "kind": "ClusterRole", "name": "system:controller:service-controller"}
    client.create(_BINDING.from_dict({**metadata, "roleRef": role, "subjects": subjects}))
    yield client
    client.delete(_BINDING, CONTROLLER)
    for resource in (_ROLE_BINDING, _ROLE, SERVICE_ACCOUNT):
        client.delete(resource, CONTROLLER, **present)
    client.delete(LEASE, CONTROLLER, **present)


def token(plane: ControlPlane, client: Client, name: str) -> str:
    """Return a token that counts as long as the Secret of this name is there."""
    client.create(SECRET.from_dict({"metadata": {"name": name}}), namespace=SYSTEM)
    bound = {"boundObjectRef": {"kind": "Secret", "apiVersion": "v1", "name": name}}
    requested = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": bound}
    request = urllib.request.Request(
        f"https://{plane.address}:{plane.port}/api/v1/namespaces/{SYSTEM}/serviceaccounts/{CONTROLLER}/token",
        data=json.dumps(requested).encode(),
        headers={"Authorization": f"Bearer {plane.tokens['owner']}", "Content-Type": "application/json"},
    )
    context = ssl.create_default_context(cafile=f"{plane.root}/certs/apiserver.crt")
    with urllib.request.urlopen(request, context=context) as answer:  # noqa: S310 - the cluster's own
        return str(json.load(answer)["status"]["token"])


def generic_kubeconfig(plane: ControlPlane, directory: Path) -> str:
    """Write the kubeconfig that Gardener makes for all controllers: its user is whoever has the token's file."""
    authority = base64.b64encode((plane.root / "certs/apiserver.crt").read_bytes()).decode()
    cluster = {"server": f"https://{plane.address}:{plane.port}", "certificate-authority-data": authority}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "shoot",
        "clusters": [{"name": "shoot", "cluster": cluster}],
        "users": [{"name": "shoot", "user": {"tokenFile": str(directory / "token")}}],
        "contexts": [{"name": "shoot", "context": {"cluster": "shoot", "user": "shoot"}}],
    }
    return yaml.safe_dump(document)


def project(directory: Path, files: Mapping[str, str], version: str) -> None:
    """Put files into a volume as the kubelet does: all at once, by a link to a directory."""
    (directory / version).mkdir(parents=True)
    for name, text in files.items():
        (directory / version / name).write_text(text)
    (directory / "..data_tmp").symlink_to(version)
    (directory / "..data_tmp").replace(directory / "..data")
    for name in files:
        if not (directory / name).is_symlink():
            (directory / name).symlink_to(f"..data/{name}")


def documents() -> dict[str, Any]:
    return {document["kind"]: document for document in yaml.safe_load_all(MANIFEST.read_text())}


def test_a_token_that_is_replaced_in_its_file_is_used_at_once_and_gardeners_rights_are_enough(
    plane: ControlPlane, cluster: Objects, account: Client, backend: Callable[..., Backend], tmp_path: Path
) -> None:
    """The former token counts no more: what comes later is served, told, and given up by the new one."""
    volume = tmp_path / "volume"
    kubeconfig = generic_kubeconfig(plane, volume)
    project(volume, {"kubeconfig": kubeconfig, "token": token(plane, account, "first")}, "..1")
    config = yaml.safe_load(documents()["ConfigMap"]["data"]["stack.yaml"])["config"]
    settings = {key.partition(":")[2]: value for key, value in config.items()} | {"runtime": "process"}
    for elsewhere in ("network", "podRoutes"):  # what makes routes, which test_machine_routes tries
        del settings[elsewhere]
    del settings["sources"][0]["kubernetes"]["nodes"]
    settings["sources"][0]["kubernetes"]["kubeconfig"] = str(volume / "kubeconfig")
    settings["sources"][0]["kubernetes"]["loopbackBackends"] = True  # this cluster's Node is processes on this host
    with stage() as play:
        play.configure(**settings)
        with watching(play) as watch:
            made(cluster, backend, "web")
            eventually(lambda: answers(address(cluster, "web"), 8080, "web"), watch)
            project(volume, {"kubeconfig": kubeconfig, "token": token(plane, account, "second")}, "..2")
            account.delete(SECRET, "first", namespace=SYSTEM)
            made(cluster, backend, "later", 8081)
            eventually(lambda: answers(address(cluster, "later"), 8081, "later"), watch)
            cluster.delete("web")
            eventually(lambda: cluster.read("web") is None, watch)
            assert account.get(LEASE, CONTROLLER, namespace=SYSTEM)["spec"]["holderIdentity"]
        assert play.run("destroy", "--yes").code == 0
    account.delete(SECRET, "second", namespace=SYSTEM)
    answers_to = {(line["objectRef"]["resource"], line["responseStatus"]["code"]) for line in _audited(plane)}
    assert ("services", 200) in answers_to
    assert {resource for resource, code in answers_to if code == 403} <= {"endpointslices"}


def _audited(plane: ControlPlane) -> list[Any]:
    """Return what the controller's account asked for."""
    lines = [json.loads(line) for line in plane.audit_log.read_text().splitlines()]
    user = f"system:serviceaccount:{SYSTEM}:{CONTROLLER}"
    return [line for line in lines if line["user"]["username"] == user and "objectRef" in line]


def test_the_manifest_of_a_control_plane_is_one_and_mounts_what_its_kubeconfig_names(cluster: Objects) -> None:
    """An API takes it, and a pod finds kubeconfig and token where Gardener's kubeconfig says."""
    for kind, resource in (("ConfigMap", CONFIG_MAP), ("Deployment", _DEPLOYMENT)):
        document = documents()[kind]
        client: Any = cluster.client
        where = {"namespace": "n"}
        client.create(resource.from_dict({**document, "metadata": {**document["metadata"], **where}}), **where)
        client.delete(resource, "local-lb", **where)
    spec = documents()["Deployment"]["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    mounted = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    (source,) = yaml.safe_load(documents()["ConfigMap"]["data"]["stack.yaml"])["config"]["local-lb:sources"]
    assert source["kubernetes"]["kubeconfig"] == f"{mounted['kubeconfig']}/kubeconfig"
    nodes = source["kubernetes"]["nodes"]
    assert nodes["kubeconfig"] == f"{mounted['cloudprovider']}/kubeconfig"
    assert nodes["namespace"] == f"infra-{source['kubernetes']['name']}"
    (projected,) = (volume["projected"] for volume in spec["volumes"] if volume["name"] == "kubeconfig")
    paths = [item["path"] for entry in projected["sources"] for item in entry["secret"]["items"]]
    assert paths == ["kubeconfig", "token"]
