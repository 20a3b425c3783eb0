"""The minimal RBAC rights in a cluster: the needs of our requests, and nothing else.

deploy/rbac*.yaml and `locallb.components.in_cluster` have the same rules; tests compare both with these, and the API
server's audit log shows that each right for Services is used.
"""

from __future__ import annotations

from msgspec import Struct

NAME = "local-lb"
"""Of the ServiceAccount, the ClusterRole and the binding."""


class Rule(Struct, frozen=True):
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
    Rule("", "services", ("get", "list", "watch")),
    Rule("", "services/status", ("patch",)),
    Rule("", "nodes", ("list", "watch")),
    Rule("discovery.k8s.io", "endpointslices", ("list", "watch")),
    Rule("events.k8s.io", "events", ("create",)),
)
"""Rights to serve Services, in every namespace. `watch` is for `locallb watch`."""
ELECTION_RULES = (
    Rule("coordination.k8s.io", "leases", ("create",)),
    Rule("coordination.k8s.io", "leases", ("get", "update"), (NAME,)),
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
    *(Rule(_GROUP, kind, ("get", "list", "watch")) for kind in _KINDS),
    Rule(_GROUP, "referencegrants", ("list", "watch")),
    *(Rule(_GROUP, f"{kind}/status", ("patch",)) for kind in _KINDS),
    Rule("", "namespaces", ("list", "watch")),
)
"""Additional rights to serve Gateways, in every namespace."""
INGRESS_RULES = (
    Rule("networking.k8s.io", "ingressclasses", ("list", "watch")),
    Rule("networking.k8s.io", "ingresses", ("get", "list", "watch")),
    Rule("networking.k8s.io", "ingresses/status", ("patch",)),
)
"""Additional rights to serve Ingresses, in every namespace."""
SECRET_RULES = (Rule("", "secrets", ("get",)),)
"""Rights to read certificates: only in the namespaces of the Secrets that Gateways and Ingresses name."""
AUTHORITY_RULES = (Rule("", "configmaps", ("get",)),)
"""Rights to read other authorities: only in the namespaces of the ConfigMaps that Gateways and policies name."""
CERTIFICATE_RULES = (Rule("", "secrets", ("watch",)), Rule("", "configmaps", ("watch",)))
"""Optional rights in the same namespaces, to notice a changed certificate or authority at once."""
RANGE_RULES = (
    Rule("crd.projectcalico.org", "blockaffinities", ("list", "watch")),
    Rule("cilium.io", "ciliumnodes", ("list", "watch")),
)
"""Where pods are that Calico or Cilium gives addresses: for routes to them."""
CLUSTER_DNS_RULES = (Rule("", "configmaps", ("get", "patch"), ("coredns", "coredns-custom")),)
"""Rights for zones in clusters, in the namespace kube-system: two ConfigMaps by their names."""
