"""Health checks of Nodes as backends: kube-proxy's health ports or, without any, the NodePort itself.

kube-proxy answers on port 10256 if it works, and on a Service's healthCheckNodePort if it works and has an endpoint
there (externalTrafficPolicy Local). Such a check costs the application no connection and works for UDP as well.
Clusters that have replaced it may answer on neither; there a TCP connection to the NodePort must do. The choice holds
for a whole cluster, because Envoy has one kind of check for all backends of an upstream. Pods can only be checked by a
connection, so NodePorts on standby for pods are checked by connections too: to kube-proxy's port, or under policy
Local to the NodePort, which answers only where an endpoint is. Not here: the checks (by Envoy and the source).
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from locallb.model.identities import Family, IPAddress, Protocol
from locallb.model.objects import Node, Service, ServicePort, TrafficPolicy
from locallb.model.serving import Backend, HealthCheck, HttpCheck

KUBE_PROXY_PORT = 10256
"""kube-proxy's healthzBindAddress; set to an address of its own, it answers in that family only."""


class NodePorts(Struct, frozen=True):
    """One port of a Service on the Nodes of a cluster, in one family, and its health check."""

    number: int
    family: Family
    check: HttpCheck | None = None
    """None: by a connection to the NodePort itself, where the protocol allows one."""
    requested: frozenset[Family] = frozenset()
    """The families in which `check` is answered; empty means the NodePort's own."""
    by_connecting: bool = False
    """Pods may serve as well: all are checked by a connection, to `check`'s port where that is kube-proxy's."""

    @property
    def health(self) -> HealthCheck:
        """The health check that Envoy makes by HTTP; None where it only connects."""
        return None if self.by_connecting else self.check

    def backends(self, nodes: Iterable[Node]) -> list[Backend]:
        """Return the NodePort on each of `nodes` that has an address of the family."""
        return [
            Backend.at(address, self.number, self._requested(node), self._port)
            for node in nodes
            for address in node.addresses
            if Family.of(address) is self.family
        ]

    @property
    def _port(self) -> int:
        """The port that is asked instead of the check's own."""
        return KUBE_PROXY_PORT if self.by_connecting and self.check == HttpCheck(KUBE_PROXY_PORT) else 0

    def _requested(self, node: Node) -> IPAddress | None:
        """Find the address on which a Node answers, if it isn't any of the NodePort's family."""
        if not self.requested or self.family in self.requested:
            return None
        return next((address for address in node.addresses if Family.of(address) in self.requested), None)


class Health(Struct, frozen=True):
    """A cluster's health ports: the families in which port 10256 answers; empty where it answers in none."""

    families: frozenset[Family]

    def of(self, service: Service, port: ServicePort, family: Family, *, excluding_pods: bool = False) -> NodePorts:
        """Decide how the NodePorts of a port are checked. Where 10256 answers, healthCheckNodePorts do as well.

        A UDP port is never checked by connecting, pods or not.
        """
        connecting = excluding_pods and port.protocol is Protocol.TCP
        if not self.families:
            return NodePorts(port.node_port, family)
        if service.traffic_policy is TrafficPolicy.LOCAL:
            check = HttpCheck(service.health_check_node_port) if service.health_check_node_port else None
            return NodePorts(port.node_port, family, check, by_connecting=connecting)
        return NodePorts(port.node_port, family, HttpCheck(KUBE_PROXY_PORT), self.families, connecting)
