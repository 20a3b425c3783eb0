"""local-lb in the cluster that it serves, on pulumi-kubernetes: for programs that set clusters up.

It declares the objects of `kubectl apply -k deploy`: the rights, a ConfigMap with the configuration, a Deployment.
Not part of a stack, as `access` isn't.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pulumi
import pulumi_kubernetes as k8s
import yaml

from components.access import ClusterAccess
from locallb.kubernetes.rights import NAME
from locallb.storage.paths import shipped

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
