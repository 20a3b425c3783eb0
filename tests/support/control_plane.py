"""A real Kubernetes API: etcd and kube-apiserver as processes of this test run and, where wanted, controllers.

Not here: how the binaries are built (`build`), what answers on NodePorts (by hand, or real Nodes: `nodes`).
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import yaml
from lightkube import ApiError, Client, KubeConfig
from lightkube.generic_resource import GenericNamespacedResource, create_global_resource, create_namespaced_resource
from lightkube.types import PatchType

from locallb.model.identities import DOMAIN
from tests.support.client_kinds import EVENT, NAMESPACE, NODE, SERVICE, SLICE
from tests.support.cluster_build import etcd, kubernetes

SECONDS = 300.0
KUBE_PROXY = "system:kube-proxy"
SERVICE_ACCOUNT = create_namespaced_resource("", "v1", "ServiceAccount", "serviceaccounts")
"""Made here once: lightkube takes no second class for a kind of the core group."""
"""A user with the rights that Kubernetes itself gives to kube-proxy."""
Document = dict[str, Any]


@dataclass
class ControlPlane:
    """One cluster: its processes, its files below `root`, and two users, the owner and local-lb."""

    name: str
    root: Path
    address: str = "127.0.0.1"
    """Where the API answers; etcd is always on 127.0.0.1."""
    port: int = 0
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    tokens: dict[str, str] = field(default_factory=dict)
    timeout: float = 20.0
    """Seconds that clients of the API wait for an answer."""

    @property
    def kubeconfig(self) -> Path:
        """The kubeconfig of local-lb's own user, with the rights of deploy/rbac.yaml only."""
        return self.root / "local-lb.kubeconfig"

    @property
    def source(self) -> Document:
        """The cluster as a source of the stack configuration."""
        return {"kubernetes": {"name": self.name, "kubeconfig": str(self.kubeconfig), "loopbackBackends": True}}

    @property
    def users(self) -> Mapping[str, str]:
        """Who may talk to the API, with the group that each is in."""
        return {"owner": "system:masters", "local-lb": "", KUBE_PROXY: ""}

    @property
    def flags(self) -> Sequence[str]:
        """What the API server is told that depends on whether there are kubelets: here there are none."""
        return (
            "--authorization-mode=RBAC",
            "--endpoint-reconciler-type=none",
            "--disable-admission-plugins=ServiceAccount",
        )

    @property
    def etcd_url(self) -> str:
        return f"http://127.0.0.1:{self._etcd_port}"

    def start(self) -> None:
        """Start everything and wait until it answers."""
        self.root.mkdir(parents=True)
        self.port, self._etcd_port, self._peer_port = _free_ports(3)
        _make_key(self.root / "sa.key")
        self.tokens = {user: secrets.token_hex(16) for user in self.users}
        (self.root / "tokens.csv").write_text(
            "".join(f'{self.tokens[user]},{user},{user},"{group}"\n' for user, group in self.users.items())
        )
        self.start_etcd()
        self.start_api()
        for user in self.tokens:
            self._write_kubeconfig(user)

    def start_etcd(self) -> None:
        """Start etcd, again if need be, with what it had."""
        client, peer = self.etcd_url, f"http://127.0.0.1:{self._peer_port}"
        self.spawn(
            "etcd",
            str(etcd()),
            f"--data-dir={self.root}/etcd",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            "--unsafe-no-fsync",
        )

    def start_api(self) -> None:
        """Start the API server, again if need be, on the same port."""
        self.spawn(
            "kube-apiserver",
            str(kubernetes("kube-apiserver")),
            f"--etcd-servers={self.etcd_url}",
            f"--bind-address={self.address}",
            f"--advertise-address={self.address}",
            f"--secure-port={self.port}",
            f"--cert-dir={self.root}/certs",
            f"--token-auth-file={self.root}/tokens.csv",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={self.root}/sa.key",
            f"--service-account-signing-key-file={self.root}/sa.key",
            "--service-cluster-ip-range=10.96.0.0/16,fd00:10:96::/112",
            f"--service-node-port-range={node_ports()}",
            f"--audit-policy-file={self._audit_policy()}",
            f"--audit-log-path={self.audit_log}",
            "--shutdown-delay-duration=0s",
            *self.flags,
        )
        self._await()

    @property
    def audit_log(self) -> Path:
        """Where the API server writes what local-lb's own user asked for, a JSON document a line."""
        return self.root / "audit.log"

    def _audit_policy(self) -> Path:
        path = self.root / "audit.yaml"
        users = ["local-lb", "system:serviceaccount:kube-system:cloud-controller-manager"]
        rules = [{"level": "Metadata", "users": users, "omitStages": ["RequestReceived"]}, {"level": "None"}]
        path.write_text(yaml.safe_dump({"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": rules}))
        return path

    def start_controllers(self) -> None:
        """Start the controllers that make EndpointSlices from Services and pods, and no others."""
        self.spawn(
            "kube-controller-manager",
            str(kubernetes("kube-controller-manager")),
            f"--kubeconfig={self.root}/owner.kubeconfig",
            "--controllers=endpointslice-controller",
            "--leader-elect=false",
            "--secure-port=0",
        )

    def stop_api(self) -> None:
        """Kill the API server; etcd goes on."""
        self._end("kube-apiserver")

    def stop_etcd(self) -> None:
        """Kill etcd; the API server goes on and can't read or write."""
        self._end("etcd")

    def await_ready(self) -> None:
        """Wait until the API answers, and says that etcd does."""
        self._await()

    def stop(self) -> None:
        for name in list(self.processes):
            self._end(name)

    def client(self, user: str = "owner") -> Client:
        config = KubeConfig.from_file(self.root / f"{user}.kubeconfig")
        return Client(config, timeout=httpx2.Timeout(self.timeout), trust_env=False)

    def _await(self) -> None:
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline:
            process = self.processes["kube-apiserver"]
            assert process.poll() is None, (self.root / "kube-apiserver.log").read_text()[-2000:]
            with contextlib.suppress(Exception):
                context = ssl.create_default_context(cafile=self.root / "certs/apiserver.crt")
                head = {"Authorization": f"Bearer {self.tokens['owner']}"}
                answer = httpx2.get(
                    f"https://{self.address}:{self.port}/readyz", headers=head, verify=context, trust_env=False
                )
                if answer.status_code == httpx2.codes.OK:
                    return
            time.sleep(0.1)
        raise AssertionError((self.root / "kube-apiserver.log").read_text()[-2000:])

    def _write_kubeconfig(self, user: str) -> None:
        cluster = {
            "server": f"https://{self.address}:{self.port}",
            "certificate-authority": f"{self.root}/certs/apiserver.crt",
        }
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": self.name,
            "clusters": [{"name": self.name, "cluster": cluster}],
            "users": [{"name": user, "user": {"token": self.tokens[user]}}],
            "contexts": [{"name": self.name, "context": {"cluster": self.name, "user": user}}],
        }
        (self.root / f"{user}.kubeconfig").write_text(yaml.safe_dump(document))

    def spawn(self, name: str, *command: str) -> None:
        """Start a process that ends with the cluster."""
        with (self.root / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd=self.root, start_new_session=True
            )

    def _end(self, name: str) -> None:
        process = self.processes.pop(name)
        process.kill()
        process.wait(SECONDS)


_CLUSTER_ROLE = create_global_resource("rbac.authorization.k8s.io", "v1", "ClusterRole", "clusterroles")
_BINDING = create_global_resource("rbac.authorization.k8s.io", "v1", "ClusterRoleBinding", "clusterrolebindings")


@contextlib.contextmanager
def control_plane(name: str, root: Path, address: str = "127.0.0.1") -> Iterator[ControlPlane]:
    """Run a cluster, with local-lb's rights and the namespace `n` in it."""
    plane = ControlPlane(name, root, address)
    with running(plane):
        yield plane


@contextlib.contextmanager
def running(plane: ControlPlane) -> Iterator[None]:
    """Run a cluster that isn't started yet."""
    try:
        plane.start()
        with plane.client() as client:
            _grant(client)
            client.create(NAMESPACE.from_dict({"metadata": {"name": "n"}}))
        yield
    finally:
        plane.stop()


def _grant(client: Client) -> None:
    """Give the user local-lb exactly what deploy/rbac.yaml gives the ServiceAccount."""
    documents = yaml.safe_load_all((Path(__file__).resolve().parents[2] / "deploy/rbac.yaml").read_text())
    for document in documents:
        if document["kind"] == "ClusterRole":
            client.create(_CLUSTER_ROLE.from_dict(document))
        elif document["kind"] == "ClusterRoleBinding":
            subject = {"kind": "User", "name": "local-lb", "apiGroup": "rbac.authorization.k8s.io"}
            client.create(_BINDING.from_dict({**document, "subjects": [subject]}))


@dataclass
class Objects:
    """The cluster's owner at work: makes, changes and deletes objects."""

    plane: ControlPlane
    client: Client

    def service(self, document: Document) -> Document:
        return dict(self.client.create(SERVICE.from_dict(document), namespace=document["metadata"]["namespace"]))

    def change(self, name: str, patch: Document) -> Document:
        """Merge a patch into a Service of the namespace n."""
        return dict(self.client.patch(SERVICE, name, patch, namespace="n", patch_type=PatchType.MERGE))

    def change_status(self, name: str, patch: Document) -> Document:
        """Merge a patch into the status of a Service of the namespace n."""
        return dict(self.client.patch(SERVICE.Status, name, patch, namespace="n", patch_type=PatchType.MERGE))

    def read(self, name: str) -> Document | None:
        """Return a Service of the namespace n; None if it is gone."""
        try:
            return dict(self.client.get(SERVICE, name, namespace="n"))
        except ApiError as error:
            if error.status.code != 404:
                raise
            return None

    def delete(self, name: str) -> None:
        """Delete a Service of the namespace n; finalizers may keep it."""
        self.client.delete(SERVICE, name, namespace="n")

    def node(self, name: str, address: str = "127.0.0.1", **metadata: object) -> None:
        self.client.create(NODE.from_dict({"metadata": {"name": name, **metadata}}))
        status = {"status": {"addresses": [{"type": "InternalIP", "address": address}]}}
        self.client.patch(NODE.Status, name, status, patch_type=PatchType.MERGE)

    def label_node(self, name: str, labels: dict[str, str]) -> None:
        self.client.patch(NODE, name, {"metadata": {"labels": labels}}, patch_type=PatchType.MERGE)

    def endpoints(self, service: str, *, ready: bool, node: str = "node-a") -> None:
        """Say by an EndpointSlice whether the Service has a ready endpoint, on which node."""
        document = {
            "metadata": {"name": f"{service}-1", "labels": {"kubernetes.io/service-name": service}},
            "addressType": "IPv4",
            "endpoints": [{"addresses": ["10.244.0.5"], "conditions": {"ready": ready}, "nodeName": node}],
            "ports": [{"name": port["name"], "port": 80} for port in self.ports(service)],
        }
        made: GenericNamespacedResource = SLICE.from_dict(document)
        with contextlib.suppress(ApiError):
            self.client.delete(SLICE, f"{service}-1", namespace="n")
        self.client.create(made, namespace="n")

    def events(self, name: str) -> list[tuple[str, str, str]]:
        """Give type, reason and note of every event of ours about a Service of the namespace n, oldest first."""
        listed = [item for item in self.client.list(EVENT, namespace="n") if item["regarding"]["name"] == name]
        found = [item for item in listed if item["reportingController"] == DOMAIN]
        found.sort(key=lambda item: str(item["eventTime"]))
        return [(item["type"], item["reason"], item["note"]) for item in found]

    def ports(self, name: str) -> list[Document]:
        """Return the ports of a Service of the namespace n, with the NodePorts that the API chose."""
        return list((self.read(name) or {})["spec"]["ports"])

    def clear(self) -> None:
        """Remove every object that tests made, finalizers or not."""
        self.clear_services()
        for node in self.client.list(NODE):
            self.client.delete(NODE, node["metadata"]["name"])

    def clear_services(self) -> None:
        """Remove Services, EndpointSlices and events, finalizers or not."""
        self.client.deletecollection(SERVICE, namespace="n")
        waiting = [item["metadata"]["name"] for item in self.client.list(SERVICE, namespace="n")]
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda name: self.change(name, {"metadata": {"finalizers": None}}), waiting))
        self.client.deletecollection(SLICE, namespace="n")
        self.client.deletecollection(EVENT, namespace="n")


def node_ports() -> str:
    """Return the NodePorts that an API may give, which tests listen at on 127.0.0.1.

    Of processes that test side by side each has an eighth of them, enough for a thousand Services: two clusters would
    give one port to both.
    """
    first, last = 20000, 31999
    if worker := os.environ.get("PYTEST_XDIST_WORKER"):
        each = (last + 1 - first) // 8
        first += int(worker.removeprefix("gw")) % 8 * each
        last = first + each - 1
    return f"{first}-{last}"


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        held = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [listener.getsockname()[1] for listener in held]


def _make_key(path: Path) -> None:
    subprocess.run(["openssl", "genrsa", "-out", str(path), "2048"], check=True, capture_output=True)
