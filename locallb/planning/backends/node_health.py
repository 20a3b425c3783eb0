"""How the health of a Node as a backend is known: by kube-proxy's health ports or, without any, by the NodePort itself.

kube-proxy tells on port 10256 that it works, and on a Service's healthCheckNodePort that it works and has an endpoint
here (externalTrafficPolicy Local). Asking it costs the application no connection and answers for UDP as well. Clusters
that have replaced it may answer on neither; there a TCP connection to the NodePort must do. Which one it is counts for
a whole cluster, because Envoy has one kind of check for all backends of an upstream. Not here: who asks (Envoy, and the
source once).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from locallb.model.identities import Family, IPAddress
from locallb.model.objects import Node, Service, ServicePort, TrafficPolicy
from locallb.model.serving import Backend, HttpCheck

KUBE_PROXY_PORT = 10256
"""kube-proxy's healthzBindAddress; set to an address of its own, it answers in that family only."""


@dataclass(frozen=True, slots=True)
class NodePorts:
    """One port of a Service on the Nodes of a cluster, in one family, and how it is checked."""

    number: int
    family: Family
    check: HttpCheck | None = None
    """None: by a connection to the NodePort itself, where the protocol allows one."""
    asked: frozenset[Family] = frozenset()
    """The families in which `check` is answered; empty stands for the NodePort's own."""

    def backends(self, nodes: Iterable[Node]) -> list[Backend]:
        """Return the NodePort on each of `nodes` that has an address of the family."""
        return [
            Backend.at(address, self.number, self._asked(node))
            for node in nodes
            for address in node.addresses
            if Family.of(address) is self.family
        ]

    def _asked(self, node: Node) -> IPAddress | None:
        """Find the address on which a Node answers, if it isn't any of the NodePort's family."""
        if not self.asked or self.family in self.asked:
            return None
        return next((address for address in node.addresses if Family.of(address) in self.asked), None)


@dataclass(frozen=True, slots=True)
class Health:
    """What is known of a cluster's health ports: the families in which 10256 answers; none where nothing does."""

    families: frozenset[Family]

    def of(self, service: Service, port: ServicePort, family: Family) -> NodePorts:
        """Decide how the NodePorts of a port are checked. Where 10256 answers, healthCheckNodePorts do as well."""
        if not self.families:
            return NodePorts(port.node_port, family)
        if service.traffic_policy is TrafficPolicy.LOCAL:
            check = HttpCheck(service.health_check_node_port) if service.health_check_node_port else None
            return NodePorts(port.node_port, family, check)
        return NodePorts(port.node_port, family, HttpCheck(KUBE_PROXY_PORT), self.families)
