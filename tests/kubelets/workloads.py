"""What runs in a cluster with kubelets: Deployments of agnhost behind Services, and who answers there."""

from __future__ import annotations

import http.client
from collections.abc import Mapping
from contextlib import closing
from typing import Any

from tests.kubelets.deployments import SERVED, Deployments
from tests.support.backends import ask
from tests.support.control_plane import Document, Objects
from tests.support.kubelet_cluster import Cluster
from tests.support.manifests import service
from tests.support.waiting import becomes


class Workloads(Objects, Deployments):
    """The cluster's owner, who also deploys; all in the namespace n."""

    straight: bool
    """Whether the stack makes routes to pods, which are then the first choice; NodePorts stand by."""

    def __init__(self, cluster: Cluster, *, straight: bool) -> None:
        Objects.__init__(self, cluster.plane, cluster.plane.client())
        self.cluster, self.straight = cluster, straight

    @property
    def settings(self) -> Document:
        """What the stack is told of that."""
        return {"podRoutes": "host" if self.straight else "off"}

    def on(self, role: str) -> Mapping[str, str]:
        """Return the selector of the Node of a role."""
        return {"kubernetes.io/hostname": self.cluster.node(role).name}

    def expose(self, name: str, *ports: int, **spec: Any) -> None:  # noqa: ANN401 - fields of the API
        """Create a Service of type LoadBalancer for a Deployment; it has port 80 if none is said."""
        listed = [service_port(number) for number in ports or (80,)]
        self.service(service(name, *listed, selector={"app": name}, **spec))

    def address(self, name: str) -> str:
        """Wait for the first address in a Service's status."""
        becomes(lambda: bool(self._entries(name)), f"{name} has an address")
        return str(self._entries(name)[0]["ip"])

    def _entries(self, name: str) -> list[Document]:
        document = self.read(name)
        assert document is not None
        return list(document["status"].get("loadBalancer", {}).get("ingress", ()))

    def empty(self) -> None:
        """Remove what a test made; the Nodes stay."""
        self.clear_services()
        self.delete_deployments()


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


def answer(address: str, port: int = 80, seconds: float = 3) -> str:
    """Return the name of the pod that answers, or that of the error."""
    with closing(http.client.HTTPConnection(address, port, timeout=seconds)) as connection:
        return answer_on(connection)


def answer_on(connection: http.client.HTTPConnection) -> str:
    """Return the same of a connection, which is made if it isn't there."""
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
