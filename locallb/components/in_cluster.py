"""The rights of local-lb in a cluster, on pulumi-kubernetes: for programs that set clusters up.

Not part of a stack: deploying it needs the rights of an administrator, local-lb needs only the rights that it grants.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pulumi
import yaml

from locallb.kubernetes.rights import (
    AUTHORITY_RULES,
    CERTIFICATE_RULES,
    CLASS_RULES,
    CLUSTER_DNS_RULES,
    ELECTION_RULES,
    GATEWAY_RULES,
    INGRESS_RULES,
    NAME,
    NODE_RULES,
    RANGE_RULES,
    RULES,
    SECRET_RULES,
    PolicyRule,
)
from locallb.model.errors import ClientError
from locallb.storage.paths import shipped

try:
    import pulumi_kubernetes as k8s
except ModuleNotFoundError:
    raise ClientError(
        "locallb.components.in_cluster needs pulumi-kubernetes, an extra of the wheel: install local-lb[kubernetes]"
    ) from None

_IN_NAMESPACES = {"secrets": SECRET_RULES, "authorities": AUTHORITY_RULES, "certificates": CERTIFICATE_RULES}
"""Rules to read, or watch, objects in the namespaces that Gateways or Ingresses name."""


class ClusterAccess(pulumi.ComponentResource):
    """A ServiceAccount with the least rights, as deploy/rbac.yaml has them."""

    account: k8s.core.v1.ServiceAccount

    def __init__(  # noqa: PLR0913 - a right each
        self,
        name: str,
        *,
        namespace: str = "kube-system",
        leader_election: bool = False,
        gateways: Sequence[str] | None = None,
        ingresses: Sequence[str] | None = None,
        classes: bool = False,
        nodes: bool = False,
        pod_ranges: bool = False,
        watch_certificates: bool = False,
        cluster_dns: bool = False,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        """Declare it.

        Args:
            name: of the component.
            namespace: where the ServiceAccount is, and the Lease.
            leader_election: let it hold a Lease there.
            gateways: let it serve Gateways, and read any Secret and ConfigMap of these namespaces for their TLS.
            ingresses: let it serve Ingresses, and read any Secret of these.
            classes: let it make the GatewayClass and the IngressClass `local-lb`.
            nodes: let it initialize Nodes, for `local-lb:nodes`.
            pod_ranges: let it read where Calico or Cilium says that pods are, for routes to them.
            watch_certificates: let it watch any Secret and ConfigMap of the namespaces of `gateways` and `ingresses`.
            cluster_dns: let it add zones to CoreDNS' configuration, for `clusters: stub` of local-lb:dns.
            opts: the provider of the cluster, for example.

        """
        super().__init__("locallb:index:ClusterAccess", name, {}, opts)
        below = pulumi.ResourceOptions(parent=self)
        rbac, meta = k8s.rbac.v1, k8s.meta.v1.ObjectMetaArgs
        local, everywhere = meta(name=NAME, namespace=namespace), meta(name=NAME)
        subjects = [rbac.SubjectArgs(kind="ServiceAccount", name=NAME, namespace=namespace)]
        self.account = k8s.core.v1.ServiceAccount(name, metadata=local, opts=below)
        rbac.ClusterRole(name, metadata=everywhere, rules=_rules(RULES), opts=below)
        rbac.ClusterRoleBinding(name, metadata=everywhere, role_ref=_role("ClusterRole"), subjects=subjects, opts=below)
        if leader_election:
            rbac.Role(name, metadata=local, rules=_rules(ELECTION_RULES), opts=below)
            rbac.RoleBinding(name, metadata=local, role_ref=_role("Role"), subjects=subjects, opts=below)
        for word, rules, namespaces in (("gateways", GATEWAY_RULES, gateways), ("ingresses", INGRESS_RULES, ingresses)):
            if namespaces is not None:
                _bind(name, f"{NAME}-{word}", rules, subjects, below)
        of_cluster = ("classes", CLASS_RULES, classes), ("nodes", NODE_RULES, nodes)
        for word, rules, is_chosen in (*of_cluster, ("pod-ranges", RANGE_RULES, pod_ranges)):
            if is_chosen:
                _bind(name, f"{NAME}-{word}", rules, subjects, below)
        if cluster_dns:
            present, called = meta(name=f"{NAME}-cluster-dns", namespace="kube-system"), f"{name}-cluster-dns"
            role = _role("Role", f"{NAME}-cluster-dns")
            rbac.Role(called, metadata=present, rules=_rules(CLUSTER_DNS_RULES), opts=below)
            rbac.RoleBinding(called, metadata=present, role_ref=role, subjects=subjects, opts=below)
        if gateways is not None or ingresses is not None:
            _read_in(name, "secrets", {*(gateways or ()), *(ingresses or ())}, subjects, below)
        if gateways is not None:
            _read_in(name, "authorities", gateways, subjects, below)
        if watch_certificates:
            _read_in(name, "certificates", {*(gateways or ()), *(ingresses or ())}, subjects, below)
        self.register_outputs({})


def _bind(
    name: str,
    role_name: str,
    rules: tuple[PolicyRule, ...],
    subjects: Sequence[k8s.rbac.v1.SubjectArgs],
    below: pulumi.ResourceOptions,
) -> None:
    """Declare a ClusterRole and its binding, as one of the files deploy/rbac-*.yaml has them."""
    rbac, metadata, called = k8s.rbac.v1, k8s.meta.v1.ObjectMetaArgs(name=role_name), role_name.replace(NAME, name, 1)
    rbac.ClusterRole(called, metadata=metadata, rules=_rules(rules), opts=below)
    role = _role("ClusterRole", role_name)
    rbac.ClusterRoleBinding(called, metadata=metadata, role_ref=role, subjects=subjects, opts=below)


def _read_in(
    name: str,
    what: str,
    namespaces: Collection[str],
    subjects: Sequence[k8s.rbac.v1.SubjectArgs],
    below: pulumi.ResourceOptions,
) -> None:
    """Declare the right to read something in these namespaces."""
    rbac, meta, some = k8s.rbac.v1, k8s.meta.v1.ObjectMetaArgs, f"{NAME}-{what}"
    rbac.ClusterRole(f"{name}-{what}", metadata=meta(name=some), rules=_rules(_IN_NAMESPACES[what]), opts=below)
    for namespace in sorted(namespaces):
        present, role = meta(name=some, namespace=namespace), _role("ClusterRole", some)
        rbac.RoleBinding(f"{name}-{what}-{namespace}", metadata=present, role_ref=role, subjects=subjects, opts=below)


def _rules(rules: tuple[PolicyRule, ...]) -> list[k8s.rbac.v1.PolicyRuleArgs]:
    return [
        k8s.rbac.v1.PolicyRuleArgs(
            api_groups=[rule.group],
            resources=[rule.resource],
            resource_names=list(rule.names) or None,
            verbs=list(rule.verbs),
        )
        for rule in rules
    ]


def _role(kind: str, name: str = NAME) -> k8s.rbac.v1.RoleRefArgs:
    return k8s.rbac.v1.RoleRefArgs(api_group="rbac.authorization.k8s.io", kind=kind, name=name)


_MANIFEST = "deploy/in-cluster.yaml"
_STACK = "Pulumi.dev.yaml"


class InCluster(pulumi.ComponentResource):
    """Two replicas with one leader, as docs/in-cluster.md describes them."""

    access: ClusterAccess
    deployment: k8s.apps.v1.Deployment

    def __init__(  # noqa: PLR0913 - what differs from place to place
        self,
        name: str,
        *,
        namespace: str = "kube-system",
        image: str = "local-lb:latest",
        configuration: str = "",
        rights: Mapping[str, Any] | None = None,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        """Declare it.

        Args:
            name: of the component.
            namespace: where the pods are, and the Lease.
            image: of local-lb, where the Nodes find it.
            configuration: the text of the stack's file; without it this cluster's Services are served, in containers.
            rights: further arguments of ClusterAccess, such as `gateways`.
            opts: the provider of the cluster, for example.

        """
        super().__init__("locallb:index:InCluster", name, {}, opts)
        below = pulumi.ResourceOptions(parent=self)
        metadata = k8s.meta.v1.ObjectMetaArgs(name=NAME, namespace=namespace)
        reported, deployed = yaml.safe_load_all(shipped(_MANIFEST).read_text(encoding="utf-8"))
        self.access = ClusterAccess(name, namespace=namespace, leader_election=True, **(rights or {}), opts=below)
        data = {_STACK: configuration or reported["data"][_STACK]}
        config = k8s.core.v1.ConfigMap(name, metadata=metadata, data=data, opts=below)
        pod = deployed["spec"]["template"]["spec"]
        for container in (*pod["initContainers"], *pod["containers"]):
            container["image"] = image
        after = pulumi.ResourceOptions(parent=self, depends_on=[config, self.access])
        self.deployment = k8s.apps.v1.Deployment(name, metadata=metadata, spec=deployed["spec"], opts=after)
        self.register_outputs({})
