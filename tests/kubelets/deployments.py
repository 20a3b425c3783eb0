"""Deployments of agnhost: pods that serve, and that end at once when told to. Not here: Services, Nodes."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet

from lightkube import Client
from lightkube.generic_resource import create_namespaced_resource
from lightkube.types import PatchType

from tests.support.client_kinds import POD
from tests.support.control_plane import Document
from tests.support.kubelet_images import AGNHOST
from tests.support.waiting import becomes

DEPLOYMENT = create_namespaced_resource("apps", "v1", "Deployment", "deployments")
SERVED = 8080
"""The port that pods serve on, TCP and UDP."""
CONTAINER = {
    "name": "server",
    "args": ["netexec", f"--http-port={SERVED}", f"--udp-port={SERVED}"],
    "readinessProbe": {"httpGet": {"path": "/healthz", "port": SERVED}, "periodSeconds": 1},
}
HOSTNAMES = {
    "name": "server",
    "image": AGNHOST,
    "args": ["serve-hostname", f"--port={SERVED}"],
    "readinessProbe": {"httpGet": {"path": "/", "port": SERVED}, "periodSeconds": 1},
}
"""It answers every path with the name of its pod."""


class Deployments:
    """Those of one namespace."""

    namespace = "n"
    image = AGNHOST
    settled = 0
    """Seconds for which a new pod is ready before an old one is told to end."""

    def __init__(self, client: Client, namespace: str, image: str) -> None:
        self.client, self.namespace, self.image = client, namespace, image

    def deploy(self, name: str, replicas: int, **spec: object) -> None:
        """Deploy pods that serve and end at once when told to; wait until all are ready. `spec` goes into theirs."""
        pod: Mapping[str, object] = {
            "terminationGracePeriodSeconds": 5,
            "containers": [{**CONTAINER, "image": self.image}],
            **spec,
        }
        template = {"metadata": {"labels": {"app": name}}, "spec": pod}
        labels = {"matchLabels": {"app": name}}
        wanted = {"replicas": replicas, "minReadySeconds": self.settled, "selector": labels, "template": template}
        document = {"metadata": {"name": name}, "spec": wanted}
        self.client.create(DEPLOYMENT.from_dict(document), namespace=self.namespace)
        self.wait(name)

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
        self.client.patch(DEPLOYMENT, name, patch, namespace=self.namespace, patch_type=PatchType.MERGE)

    def _generation(self, name: str) -> int:
        return int(self.client.get(DEPLOYMENT, name, namespace=self.namespace)["metadata"]["generation"])

    def wait(self, name: str) -> None:
        """Wait until a Deployment is what it shall be, and its former pods are gone."""
        becomes(lambda: self._complete(name), f"the Deployment {name} is complete")

    def _complete(self, name: str) -> bool:
        deployment = self.client.get(DEPLOYMENT, name, namespace=self.namespace)
        wanted, status = deployment["spec"]["replicas"], deployment.get("status") or {}
        observed = status.get("observedGeneration") == deployment["metadata"]["generation"]
        done = [status.get(key, 0) for key in ("replicas", "updatedReplicas", "readyReplicas")] == [wanted] * 3
        return observed and done and len(self.pods(name)) == wanted

    def pods(self, name: str) -> Mapping[str, str]:
        """Return the pods of a Deployment, those that end as well, with the Node of each."""
        listed = self.client.list(POD, namespace=self.namespace, labels={"app": name})
        return {str(item["metadata"]["name"]): str(item["spec"].get("nodeName", "")) for item in listed}

    def addresses(self, name: str) -> AbstractSet[str]:
        """Return the addresses of a Deployment's pods."""
        listed = self.client.list(POD, namespace=self.namespace, labels={"app": name})
        return {str(entry["ip"]) for item in listed for entry in item["status"].get("podIPs", ())}

    def delete_deployments(self) -> None:
        """Delete all of them, and wait until their pods are gone."""
        for item in self.client.list(DEPLOYMENT, namespace=self.namespace):
            self.client.delete(DEPLOYMENT, item["metadata"]["name"], namespace=self.namespace)
        becomes(lambda: not list(self.client.list(POD, namespace=self.namespace)), "the pods are gone")
