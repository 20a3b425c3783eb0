"""What runs in a cluster with kubelets: Deployments of agnhost behind Services, and who answers there."""

from __future__ import annotations

import http.client
from collections.abc import Mapping
from contextlib import closing
from typing import Any

from lightkube.generic_resource import create_namespaced_resource
from lightkube.types import PatchType

from locallb.kubernetes.api.client import SLICE
from tests.cluster.controlplane import Document, Objects
from tests.e2e.support import ask, service
from tests.kubelets.cluster import Cluster
from tests.kubelets.images import AGNHOST
from tests.traffic.nodes import POD
from tests.traffic.waiting import eventually

DEPLOYMENT = create_namespaced_resource("apps", "v1", "Deployment", "deployments")
SERVED = 8080
"""The port that pods serve on, TCP and UDP."""


class Workloads(Objects):
    """The cluster's owner, who also deploys; all in the namespace n."""

    straight: bool
    """Whether Services go without NodePorts, so that only pods can be reached."""

    def __init__(self, cluster: Cluster, *, straight: bool) -> None:
        super().__init__(cluster.plane, cluster.plane.client())
        self.cluster, self.straight = cluster, straight

    def deploy(self, name: str, replicas: int, **spec: object) -> None:
        """Deploy pods that serve and end at once when told to; wait until all are ready. `spec` goes into theirs."""
        pod: Mapping[str, object] = {"terminationGracePeriodSeconds": 5, "containers": [_CONTAINER], **spec}
        template = {"metadata": {"labels": {"app": name}}, "spec": pod}
        labels = {"matchLabels": {"app": name}}
        document = {
            "metadata": {"name": name},
            "spec": {"replicas": replicas, "selector": labels, "template": template},
        }
        self.client.create(DEPLOYMENT.from_dict(document), namespace="n")
        self.wait(name)

    def on(self, role: str) -> Mapping[str, str]:
        """Return the selector of the Node of a role."""
        return {"kubernetes.io/hostname": self.cluster.node(role).name}

    def scale(self, name: str, replicas: int) -> None:
        """Change how many pods a Deployment has, and wait until they are ready."""
        self._patch(name, {"spec": {"replicas": replicas}})
        self.wait(name)

    def roll(self, name: str, **spec: object) -> None:
        """Replace all pods of a Deployment, one after another, and wait until only new ones are there."""
        annotations = {"rolled": str(self._generation(name))}
        self._patch(name, {"spec": {"template": {"metadata": {"annotations": annotations}, "spec": spec}}})
        self.wait(name)

    def _patch(self, name: str, patch: Document) -> None:
        self.client.patch(DEPLOYMENT, name, patch, namespace="n", patch_type=PatchType.MERGE)

    def _generation(self, name: str) -> int:
        return int(self.client.get(DEPLOYMENT, name, namespace="n")["metadata"]["generation"])

    def wait(self, name: str) -> None:
        """Wait until a Deployment is what it shall be, and its former pods are gone."""
        eventually(lambda: self._complete(name), f"the Deployment {name} is complete")

    def _complete(self, name: str) -> bool:
        found = self.client.get(DEPLOYMENT, name, namespace="n")
        wanted, status = found["spec"]["replicas"], found.get("status") or {}
        seen = status.get("observedGeneration") == found["metadata"]["generation"]
        done = [status.get(key, 0) for key in ("replicas", "updatedReplicas", "readyReplicas")] == [wanted] * 3
        return seen and done and len(self.pods(name)) == wanted

    def pods(self, name: str) -> Mapping[str, str]:
        """Return the pods of a Deployment, those that end as well, with the role of the Node of each."""
        listed = self.client.list(POD, namespace="n", labels={"app": name})
        prefix = f"{self.plane.name}-"
        return {
            str(one["metadata"]["name"]): str(one["spec"].get("nodeName", "")).removeprefix(prefix) for one in listed
        }

    def expose(self, name: str, *ports: int, **spec: Any) -> None:  # noqa: ANN401 - fields of the API
        """Create a Service of type LoadBalancer for a Deployment; it has port 80 if none is said."""
        listed = [service_port(number) for number in ports or (80,)]
        spec.setdefault("allocateLoadBalancerNodePorts", not self.straight)
        self.service(service(name, *listed, selector={"app": name}, **spec))

    def address(self, name: str) -> str:
        """Wait for the first address in a Service's status."""
        eventually(lambda: bool(self._entries(name)), f"{name} has an address")
        return str(self._entries(name)[0]["ip"])

    def _entries(self, name: str) -> list[Document]:
        found = self.read(name)
        assert found is not None
        return list(found["status"].get("loadBalancer", {}).get("ingress", ()))

    def empty(self) -> None:
        """Remove what a test made; the Nodes stay."""
        self.clear_services()
        for one in self.client.list(DEPLOYMENT, namespace="n"):
            self.client.delete(DEPLOYMENT, one["metadata"]["name"], namespace="n")
        eventually(lambda: not list(self.client.list(POD, namespace="n")), "the pods are gone")

    def count_endpoints(self, name: str) -> int:
        """Count the ready IPv4 endpoints of a Service."""
        slices = list(self.client.list(SLICE, namespace="n", labels={"kubernetes.io/service-name": name}))
        every = [one for each in slices if each["addressType"] == "IPv4" for one in each.get("endpoints") or ()]
        return sum(bool(one["conditions"].get("ready")) for one in every)


def service_port(number: int, protocol: str = "TCP") -> Document:
    """Make a Service port that leads to what pods serve."""
    name = f"{protocol.lower()}-{number}"
    return {"name": name, "port": number, "protocol": protocol, "targetPort": SERVED}


SPREAD = {
    "topologySpreadConstraints": [
        {
            "maxSkew": 1,
            "topologyKey": "kubernetes.io/hostname",
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": "web"}},
        }
    ]
}
"""In the spec of pods of `web`: they are on different Nodes."""
_CONTAINER = {
    "name": "server",
    "image": AGNHOST,
    "args": ["netexec", f"--http-port={SERVED}", f"--udp-port={SERVED}"],
    "readinessProbe": {"httpGet": {"path": "/healthz", "port": SERVED}, "periodSeconds": 1},
}


def answer(address: str, port: int = 80, seconds: float = 3) -> str:
    """Return the name of the pod that answers, or that of the error."""
    connection = http.client.HTTPConnection(address, port, timeout=seconds)
    with closing(connection):
        try:
            connection.request("GET", "/hostname", headers={"Connection": "close"})
            reply = connection.getresponse()
            text = reply.read().decode()
        except (OSError, http.client.HTTPException) as error:
            return type(error).__name__
    return text if reply.status == http.client.OK else f"HTTP {reply.status}"


def answer_udp(address: str, port: int) -> str:
    """Return the name of the pod that answers a datagram, or that of the error."""
    try:
        return ask(address, port, "UDP", "hostname", seconds=1)
    except OSError as error:
        return type(error).__name__
