"""The minimal RBAC rights in a cluster: what each of our requests needs, and nothing else.

deploy/rbac*.yaml and the component `components.access` say the same; tests hold both to this, and the API server's
audit log tells that none of those for Services is unused.
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
"""What serving needs, in every namespace. `watch` is for `locallb watch`."""
ELECTION_RULES = (
    Rule("coordination.k8s.io", "leases", ("create",)),
    Rule("coordination.k8s.io", "leases", ("get", "update"), (NAME,)),
)
"""What leader election needs, in the namespace of its Lease: this one by default. One that is made has no name yet."""
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
"""What serving Gateways needs besides, in every namespace."""
INGRESS_RULES = (
    Rule("networking.k8s.io", "ingressclasses", ("list", "watch")),
    Rule("networking.k8s.io", "ingresses", ("get", "list", "watch")),
    Rule("networking.k8s.io", "ingresses/status", ("patch",)),
)
"""What serving Ingresses needs besides, in every namespace."""
SECRET_RULES = (Rule("", "secrets", ("get",)),)
"""What certificates need: where the Secrets are that Gateways and Ingresses name, and nowhere else."""
AUTHORITY_RULES = (Rule("", "configmaps", ("get",)),)
"""What authorities of others need: where the ConfigMaps are that Gateways and policies name, and nowhere else."""
CERTIFICATE_RULES = (Rule("", "secrets", ("watch",)), Rule("", "configmaps", ("watch",)))
"""What hearing of another certificate or authority at once needs besides, likewise: nobody need give it."""
RANGE_RULES = (
    Rule("crd.projectcalico.org", "blockaffinities", ("list", "watch")),
    Rule("cilium.io", "ciliumnodes", ("list", "watch")),
)
"""Where pods are that Calico or Cilium gives addresses: for routes to them."""
CLUSTER_DNS_RULES = (Rule("", "configmaps", ("get", "patch"), ("coredns", "coredns-custom")),)
"""What zones in clusters need, in the namespace kube-system: two ConfigMaps by their names."""
