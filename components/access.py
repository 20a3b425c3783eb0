"""The rights of local-lb in a cluster, on pulumi-kubernetes: for programs that set clusters up.

Not part of a stack: who deploys it needs the rights of an administrator, local-lb needs only those that it makes.
"""

from __future__ import annotations

import pulumi
import pulumi_kubernetes as k8s

from locallb.kubernetes.rights import ELECTION_RULES, NAME, RULES, Rule


class ClusterAccess(pulumi.ComponentResource):
    """A ServiceAccount with the least rights, as deploy/rbac.yaml has them."""

    account: k8s.core.v1.ServiceAccount

    def __init__(
        self,
        name: str,
        *,
        namespace: str = "kube-system",
        leader_election: bool = False,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        """Declare it.

        Args:
            name: of the component.
            namespace: where the ServiceAccount is, and the Lease.
            leader_election: let it hold a Lease there.
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
        self.register_outputs({})


def _rules(rules: tuple[Rule, ...]) -> list[k8s.rbac.v1.PolicyRuleArgs]:
    return [
        k8s.rbac.v1.PolicyRuleArgs(api_groups=[rule.group], resources=[rule.resource], verbs=list(rule.verbs))
        for rule in rules
    ]


def _role(kind: str) -> k8s.rbac.v1.RoleRefArgs:
    return k8s.rbac.v1.RoleRefArgs(api_group="rbac.authorization.k8s.io", kind=kind, name=NAME)
