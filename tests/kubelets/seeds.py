"""A seed of Gardener as its local setup lays it out, in a cluster with kubelets: shoots whose Nodes are pods there.

A shoot's API is a process of this test; its Nodes are pods that answer on NodePorts as their kube-proxies would. Not
here: Gardener itself, which makes and removes all of that.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml
from lightkube import ApiError, Client
from lightkube.codecs import load_all_yaml
from lightkube.generic_resource import GenericGlobalResource, GenericNamespacedResource, create_global_resource
from lightkube.types import PatchType

from tests.support.client_kinds import NAMESPACE, NODE, POD, SECRET, SERVICE
from tests.support.control_plane import ControlPlane, Document, Objects, control_plane
from tests.support.kubelet_cluster import Cluster
from tests.support.kubelet_images import AGNHOST
from tests.support.manifests import service
from tests.support.waiting import becomes

CLUSTER = create_global_resource("extensions.gardener.cloud", "v1alpha1", "Cluster", "clusters")
BASTION, GATEWAY = "bastion", "istio-ingressgateway"
NODE_PORT, HEALTH_PORT, KUBE_PROXY_PORT = 30080, 31081, 10256
_DEFINITION = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: clusters.extensions.gardener.cloud}
spec:
  group: extensions.gardener.cloud
  scope: Cluster
  names: {kind: Cluster, plural: clusters, singular: cluster, listKind: ClusterList}
  versions:
    - name: v1alpha1
      served: true
      storage: true
      schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
"""


@dataclass(eq=False)
class Shoot:
    """One shoot: its API, what the seed says of it, and its only Node."""

    name: str
    plane: ControlPlane
    seed: Client
    cluster: Cluster

    @property
    def infra(self) -> str:
        """The namespace of its Nodes in the seed."""
        return f"infra-{self.name}"

    def announce(self) -> None:
        """Have the seed say that it is there, and how it is reached."""
        labels = {"gardener.cloud/role": "shoot", "shoot.gardener.cloud/provider": "local"}
        for name, own in ((self.name, labels), (self.infra, {})):
            namespace = NAMESPACE.from_dict({"metadata": {"name": name, "labels": own}})
            becomes(lambda namespace=namespace: _created(self.seed, namespace), f"no earlier {name} is left")  # type: ignore[misc]
        data = {"kubeconfig": base64.b64encode(self._kubeconfig().encode()).decode()}
        self.seed.create(SECRET.from_dict({"metadata": {"name": "gardener"}, "data": data}), namespace=self.name)
        status = {"technicalID": self.name, "hibernated": False}
        spec = {"provider": {"type": "local"}, "hibernation": {"enabled": False}}
        document = {"metadata": {"name": self.name}, "spec": {"shoot": {"spec": spec, "status": status}}}
        becomes(lambda: _created(self.seed, CLUSTER.from_dict(document)), "the seed takes Clusters")

    def _kubeconfig(self) -> str:
        """Write the administrator's kubeconfig, with everything inside."""
        document = yaml.safe_load((self.plane.root / "owner.kubeconfig").read_text())
        inside = document["clusters"][0]["cluster"]
        authority = Path(inside.pop("certificate-authority")).read_bytes()
        inside["certificate-authority-data"] = base64.b64encode(authority).decode()
        return yaml.safe_dump(document)

    def forget(self) -> None:
        """Take away all that the seed has of it."""
        for namespace in (self.name, self.infra):
            self.seed.delete(NAMESPACE, namespace)

    def hibernate(self, *, asleep: bool) -> None:
        """Say that it shall sleep, or wake."""
        patch = {"spec": {"shoot": {"spec": {"hibernation": {"enabled": asleep}}, "status": {"hibernated": asleep}}}}
        self.seed.patch(CLUSTER, self.name, patch, patch_type=PatchType.MERGE)

    def start_machine(self, role: str) -> str:
        """Start its Node on a Node of the seed; return the name by which it answers."""
        name = f"machine-{self.name}-{role}"
        labels = {"app": "machine", "machine": name, "machine-provider": "local"}
        spec = {
            "nodeName": self.cluster.node(role).name,
            "terminationGracePeriodSeconds": 0,
            "containers": [_listening(number) for number in (NODE_PORT, HEALTH_PORT, KUBE_PROXY_PORT)],
        }
        pod = POD.from_dict({"metadata": {"name": name, "namespace": self.infra, "labels": labels}, "spec": spec})
        becomes(lambda: _created(self.seed, pod), "the namespace has its account")
        becomes(lambda: bool(self.address(name)), f"{name} has an address")
        with self.plane.client() as client:
            Objects(self.plane, client).node(name, self.address(name))
        return name

    def address(self, name: str) -> str:
        """Return the address of its Node; empty where it isn't ready."""
        status = self.seed.get(POD, name, namespace=self.infra).get("status") or {}
        ready = all(container["ready"] for container in status.get("containerStatuses", ({"ready": False},)))
        return str(status.get("podIP", "")) if ready else ""

    def end_machines(self) -> None:
        self.seed.deletecollection(POD, namespace=self.infra)
        becomes(lambda: not list(self.seed.list(POD, namespace=self.infra)), "the machines are gone")
        with self.plane.client() as client:
            client.deletecollection(NODE)

    def start_bastion(self, name: str) -> None:
        """Start a bastion beside its Nodes, with a Service as the seed makes one."""
        namespace, labels = self.infra, {"app": BASTION, "bastion": name}
        serve_pod(self.seed, namespace, f"{BASTION}-{name}", labels, NODE_PORT)
        document = service(
            f"{BASTION}-{name}",
            {"name": "ssh", "port": 22, "targetPort": NODE_PORT, "appProtocol": "ssh"},
            namespace=namespace,
            selector=labels,
        )
        self.seed.create(SERVICE.from_dict(document), namespace=namespace)

    def serve(self) -> None:
        port = {"port": 80, "nodePort": NODE_PORT, "protocol": "TCP"}
        with self.plane.client() as client:
            Objects(self.plane, client).service(
                service("web", port, externalTrafficPolicy="Local", healthCheckNodePort=HEALTH_PORT)
            )

    def served_at(self) -> str:
        """Return the address in its Service's status; empty if there is none."""
        with self.plane.client() as client:
            written = Objects(self.plane, client).read("web") or {}
        entries = written["status"].get("loadBalancer", {}).get("ingress", ())
        return str(entries[0]["ip"]) if entries else ""


@contextmanager
def istio_gateways(seed: Client, *zones: str) -> Iterator[list[tuple[str, str]]]:
    """Serve a seed's istio gateway, and one for each of its zones; yields the Services' namespaces and names."""
    places = [("istio-ingress", GATEWAY), *((f"istio-ingress--{zone}", GATEWAY) for zone in zones)]
    labels = {"app": GATEWAY}
    ports = [
        {"name": name, "port": number, "targetPort": inside}
        for name, number, inside in (("tcp", 443, 9443), ("http-proxy", 8443, 8443))
    ]
    with ExitStack() as stack:
        for namespace, name in places:
            role = {"gardener.cloud/role": "istio-ingress"}
            seed.create(NAMESPACE.from_dict({"metadata": {"name": namespace, "labels": role}}))
            stack.callback(seed.delete, NAMESPACE, namespace)
            serve_pod(seed, namespace, name, labels, 9443, 8443)
            document = service(name, *ports, namespace=namespace, selector=labels)
            seed.create(SERVICE.from_dict(document), namespace=namespace)
        yield places


def serve_pod(seed: Client, namespace: str, name: str, labels: Mapping[str, str], *ports: int) -> None:
    """Start a pod that answers with its name on some ports."""
    spec = {"terminationGracePeriodSeconds": 0, "containers": [_listening(port) for port in ports]}
    metadata = {"name": name, "namespace": namespace, "labels": dict(labels)}
    pod = POD.from_dict({"metadata": metadata, "spec": {**spec, "hostname": name}})
    becomes(lambda: _created(seed, pod), f"{namespace} has its account")


def entries(client: Client, namespace: str, name: str) -> list[str]:
    """Return the addresses in a Service's status."""
    status = client.get(SERVICE, name, namespace=namespace).get("status") or {}
    return [str(entry["ip"]) for entry in status.get("loadBalancer", {}).get("ingress", ())]


def _created(seed: Client, document: GenericGlobalResource | GenericNamespacedResource) -> bool:
    try:
        seed.create(document)
    except ApiError:  # what it needs is being made
        return False
    return True


def _listening(number: int) -> Document:
    args = ["netexec", f"--http-port={number}", f"--udp-port={number}"]
    probe = {"httpGet": {"path": "/healthz", "port": number}, "periodSeconds": 1}
    return {"name": f"at-{number}", "image": AGNHOST, "args": args, "readinessProbe": probe}


@contextmanager
def shoots(cluster: Cluster, root: Path, *names: str) -> Iterator[list[Shoot]]:
    """Make a cluster a seed with these shoots, which have no Nodes yet."""
    with ExitStack() as stack:
        seed = stack.enter_context(cluster.plane.client())
        (definition,) = load_all_yaml(_DEFINITION)
        becomes(lambda: _created(seed, definition), "the kind of an earlier test is gone")
        stack.callback(lambda: seed.delete(type(definition), "clusters.extensions.gardener.cloud"))
        made = []
        for name in names:
            plane = stack.enter_context(control_plane(name, root / name))
            made.append(Shoot(name, plane, seed, cluster))
            made[-1].announce()
            stack.callback(made[-1].forget)
        yield made
