"""The minimal RBAC rights in a cluster: the needs of our requests, and nothing else.

deploy/rbac*.yaml has the same rules, and `locallb.components.in_cluster` those without a relay; tests compare them, and
the API server's audit log shows that each right for Services is used.
"""

from __future__ import annotations

from msgspec import Struct

NAME = "local-lb"
"""Of the ServiceAccount, the ClusterRole and the binding."""


class PolicyRule(Struct, frozen=True):
    """A PolicyRule of rbac.authorization.k8s.io/v1 for one resource."""

    group: str
    resource: str
    verbs: tuple[str, ...]
    names: tuple[str, ...] = ()
    """Of the objects; none: any."""

    @property
    def fields(self) -> dict[str, list[str]]:
        """The rule as the API has it."""
        named = {"resourceNames": list(self.names)} if self.names else {}
        return {"apiGroups": [self.group], "resources": [self.resource], **named, "verbs": list(self.verbs)}


RULES = (
    PolicyRule("", "services", ("get", "list", "watch")),
    PolicyRule("", "services/status", ("patch",)),
    PolicyRule("", "nodes", ("list", "watch")),
    PolicyRule("discovery.k8s.io", "endpointslices", ("list", "watch")),
    PolicyRule("events.k8s.io", "events", ("create",)),
)
"""Rights to serve Services, in every namespace. `watch` is for `locallb watch`."""
ELECTION_RULES = (
    PolicyRule("coordination.k8s.io", "leases", ("create",)),
    PolicyRule("coordination.k8s.io", "leases", ("get", "update"), (NAME,)),
)
"""Rights of leader election, in the namespace of its Lease: this one by default. A Lease to create has no name yet."""
_KINDS = (
    "gatewayclasses",
    "gateways",
    "listenersets",
    "httproutes",
    "grpcroutes",
    "tlsroutes",
    "tcproutes",
    "udproutes",
    "backendtlspolicies",
)
_GROUP = "gateway.networking.k8s.io"
GATEWAY_RULES = (
    *(PolicyRule(_GROUP, kind, ("get", "list", "watch")) for kind in _KINDS),
    PolicyRule(_GROUP, "referencegrants", ("list", "watch")),
    *(PolicyRule(_GROUP, f"{kind}/status", ("patch",)) for kind in _KINDS),
    PolicyRule("", "namespaces", ("list", "watch")),
)
"""Additional rights to serve Gateways, in every namespace."""
INGRESS_RULES = (
    PolicyRule("networking.k8s.io", "ingressclasses", ("list", "watch")),
    PolicyRule("networking.k8s.io", "ingresses", ("get", "list", "watch")),
    PolicyRule("networking.k8s.io", "ingresses/status", ("patch",)),
)
"""Additional rights to serve Ingresses, in every namespace."""
CLASS_RULES = tuple(
    rule
    for group, kind in ((_GROUP, "gatewayclasses"), ("networking.k8s.io", "ingressclasses"))
    for rule in (PolicyRule(group, kind, ("create",)), PolicyRule(group, kind, ("get", "patch", "delete"), (NAME,)))
)
"""Additional rights to make the classes `local-lb`, and to change no other. A class to create has no name yet."""
SECRET_RULES = (PolicyRule("", "secrets", ("get",)),)
"""Rights to read certificates: only in the namespaces of the Secrets that Gateways and Ingresses name."""
AUTHORITY_RULES = (PolicyRule("", "configmaps", ("get",)),)
"""Rights to read other authorities: only in the namespaces of the ConfigMaps that Gateways and policies name."""
CERTIFICATE_RULES = (PolicyRule("", "secrets", ("watch",)), PolicyRule("", "configmaps", ("watch",)))
"""Optional rights in the same namespaces, to notice a changed certificate or authority at once."""
RANGE_RULES = (
    PolicyRule("crd.projectcalico.org", "blockaffinities", ("list", "watch")),
    PolicyRule("cilium.io", "ciliumnodes", ("list", "watch")),
)
"""Where pods are that Calico or Cilium gives addresses: for routes to them."""
NODE_RULES = (PolicyRule("", "nodes", ("get", "patch")), PolicyRule("", "nodes/status", ("patch",)))
"""Additional rights to initialize Nodes: no rule can name single fields, or Nodes that don't exist yet."""
RELAY_RULES = (PolicyRule("", "pods/portforward", ("create",)),)
"""Rights to connect to pods through the API server."""
CLUSTER_DNS_RULES = (PolicyRule("", "configmaps", ("get", "patch"), ("coredns", "coredns-custom")),)
"""Rights for zones in clusters, in the namespace kube-system: two ConfigMaps by their names."""
