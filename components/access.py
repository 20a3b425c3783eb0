"""The rights of local-lb in a cluster, on pulumi-kubernetes: for programs that set clusters up.

Not part of a stack: who deploys it needs the rights of an administrator, local-lb needs only those that it makes.
"""

from __future__ import annotations

from collections.abc import Sequence

import pulumi
import pulumi_kubernetes as k8s

from locallb.kubernetes.rights import ELECTION_RULES, GATEWAY_RULES, NAME, RULES, SECRET_RULES, Rule


class ClusterAccess(pulumi.ComponentResource):
    """A ServiceAccount with the least rights, as deploy/rbac.yaml has them."""

    account: k8s.core.v1.ServiceAccount

    def __init__(
        self,
        name: str,
        *,
        namespace: str = "kube-system",
        leader_election: bool = False,
        gateways: Sequence[str] | None = None,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        """Declare it.

        Args:
            name: of the component.
            namespace: where the ServiceAccount is, and the Lease.
            leader_election: let it hold a Lease there.
            gateways: let it serve Gateways, and read any Secret of these namespaces for their certificates.
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
        if gateways is not None:
            _serve_gateways(name, gateways, subjects, below)
        self.register_outputs({})


def _serve_gateways(
    name: str,
    namespaces: Sequence[str],
    subjects: Sequence[k8s.rbac.v1.SubjectArgs],
    below: pulumi.ResourceOptions,
) -> None:
    """Declare what deploy/rbac-gateways.yaml has, and the right to read Secrets in these namespaces."""
    rbac, meta = k8s.rbac.v1, k8s.meta.v1.ObjectMetaArgs
    every, some = f"{NAME}-gateways", f"{NAME}-secrets"
    for word, rules in ((every, GATEWAY_RULES), (some, SECRET_RULES)):
        rbac.ClusterRole(word.replace(NAME, name, 1), metadata=meta(name=word), rules=_rules(rules), opts=below)
    role = _role("ClusterRole", every)
    rbac.ClusterRoleBinding(f"{name}-gateways", metadata=meta(name=every), role_ref=role, subjects=subjects, opts=below)
    for namespace in namespaces:
        there, role = meta(name=some, namespace=namespace), _role("ClusterRole", some)
        rbac.RoleBinding(f"{name}-secrets-{namespace}", metadata=there, role_ref=role, subjects=subjects, opts=below)


def _rules(rules: tuple[Rule, ...]) -> list[k8s.rbac.v1.PolicyRuleArgs]:
    return [
        k8s.rbac.v1.PolicyRuleArgs(api_groups=[rule.group], resources=[rule.resource], verbs=list(rule.verbs))
        for rule in rules
    ]


def _role(kind: str, name: str = NAME) -> k8s.rbac.v1.RoleRefArgs:
    return k8s.rbac.v1.RoleRefArgs(api_group="rbac.authorization.k8s.io", kind=kind, name=name)
