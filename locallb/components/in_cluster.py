"""The rights of local-lb in a cluster, on pulumi-kubernetes: for programs that set clusters up.

The rules are read from the manifests deploy/rbac*.yaml. Not part of a stack: deploying it needs the rights of an
administrator, local-lb needs only the rights that it grants.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pulumi
import yaml

from locallb.model.errors import ClientError
from locallb.storage.paths import shipped

try:
    import pulumi_kubernetes as k8s
except ModuleNotFoundError:
    raise ClientError(
        "locallb.components.in_cluster needs pulumi-kubernetes, an extra of the wheel: install local-lb[kubernetes]"
    ) from None

NAME = "local-lb"
"""Of the ServiceAccount, the ClusterRole and the binding."""
_IN_NAMESPACES = {"secrets": "gateways", "authorities": "gateways", "certificates": "certificates"}
"""Roles to read, or watch, objects in the namespaces that Gateways or Ingresses name, and the manifest of each."""


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
        rbac.ClusterRole(name, metadata=everywhere, rules=_rules("rbac.yaml"), opts=below)
        rbac.ClusterRoleBinding(name, metadata=everywhere, role_ref=_role("ClusterRole"), subjects=subjects, opts=below)
        if leader_election:
            rbac.Role(name, metadata=local, rules=_rules("rbac-leader-election.yaml"), opts=below)
            rbac.RoleBinding(name, metadata=local, role_ref=_role("Role"), subjects=subjects, opts=below)
        wanted = {"gateways": gateways is not None, "ingresses": ingresses is not None, "classes": classes}
        for word, is_wanted in {**wanted, "nodes": nodes, "pod-ranges": pod_ranges}.items():
            if is_wanted:
                _bind(name, word, subjects, below)
        if cluster_dns:
            present, called = meta(name=f"{NAME}-cluster-dns", namespace="kube-system"), f"{name}-cluster-dns"
            role = _role("Role", f"{NAME}-cluster-dns")
            rbac.Role(called, metadata=present, rules=_rules("rbac-cluster-dns.yaml", "cluster-dns"), opts=below)
            rbac.RoleBinding(called, metadata=present, role_ref=role, subjects=subjects, opts=below)
        if gateways is not None or ingresses is not None:
            _read_in(name, "secrets", {*(gateways or ()), *(ingresses or ())}, subjects, below)
        if gateways is not None:
            _read_in(name, "authorities", gateways, subjects, below)
        if watch_certificates:
            _read_in(name, "certificates", {*(gateways or ()), *(ingresses or ())}, subjects, below)
        self.register_outputs({})


def _bind(name: str, word: str, subjects: Sequence[k8s.rbac.v1.SubjectArgs], below: pulumi.ResourceOptions) -> None:
    """Declare a ClusterRole and its binding, as one of the files deploy/rbac-*.yaml has them."""
    rbac, metadata, called = k8s.rbac.v1, k8s.meta.v1.ObjectMetaArgs(name=f"{NAME}-{word}"), f"{name}-{word}"
    rbac.ClusterRole(called, metadata=metadata, rules=_rules(f"rbac-{word}.yaml", word), opts=below)
    role = _role("ClusterRole", f"{NAME}-{word}")
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
    rules = _rules(f"rbac-{_IN_NAMESPACES[what]}.yaml", what)
    rbac.ClusterRole(f"{name}-{what}", metadata=meta(name=some), rules=rules, opts=below)
    for namespace in sorted(namespaces):
        present, role = meta(name=some, namespace=namespace), _role("ClusterRole", some)
        rbac.RoleBinding(f"{name}-{what}-{namespace}", metadata=present, role_ref=role, subjects=subjects, opts=below)


def _rules(manifest: str, word: str = "") -> list[k8s.rbac.v1.PolicyRuleArgs]:
    """Return the rules of the role `local-lb`, or `local-lb-<word>`, in a manifest of deploy/."""
    role, text = f"{NAME}-{word}" if word else NAME, shipped(f"deploy/{manifest}").read_text(encoding="utf-8")
    documents = (each for each in yaml.safe_load_all(text) if each["metadata"]["name"] == role)
    return [
        k8s.rbac.v1.PolicyRuleArgs(
            api_groups=rule["apiGroups"],
            resources=rule["resources"],
            resource_names=rule.get("resourceNames"),
            verbs=rule["verbs"],
        )
        for rule in next(each["rules"] for each in documents if "rules" in each)
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
