"""What a cluster has before the suite begins: the CRDs of Gateway API, our rights, and the GatewayClass.

Not here: Gateways and routes, which the suite makes itself.
"""

from __future__ import annotations

from lightkube import ApiError, Client
from lightkube.generic_resource import create_global_resource
from lightkube.resources.core_v1 import Namespace

from locallb.gateway.crds import DEFINITION, carried
from locallb.model.gateway_objects import CONTROLLER, GROUP
from tests.support.cluster_gateways import CRD
from tests.support.control_plane import Document
from tests.support.kubelet_cluster import Cluster
from tests.support.rbac_manifests import rules_for_gateways
from tests.support.waiting import becomes
from tests.support.watching import eventually

CLASS = "local-lb"
_RBAC = "rbac.authorization.k8s.io"
ROLE = create_global_resource(_RBAC, "v1", "ClusterRole", "clusterroles")
BINDING = create_global_resource(_RBAC, "v1", "ClusterRoleBinding", "clusterrolebindings")
CLASSES = create_global_resource(GROUP, "v1", "GatewayClass", "gatewayclasses")
NAME = "local-lb-gateways"


def prepare(cluster: Cluster) -> None:
    """Have the cluster serve Gateway API, let local-lb read all that Gateways need, and make the class."""
    rules = rules_for_gateways()
    subject = {"kind": "User", "name": "local-lb", "apiGroup": _RBAC}
    role = {"apiGroup": _RBAC, "kind": "ClusterRole", "name": NAME}
    with cluster.plane.client() as owner:
        for document in carried().channels["experimental"]:
            if document["kind"] == DEFINITION:
                owner.create(CRD.from_dict(dict(document)))
        owner.create(ROLE.from_dict({"metadata": {"name": NAME}, "rules": rules}))
        owner.create(BINDING.from_dict({"metadata": {"name": NAME}, "roleRef": role, "subjects": [subject]}))
        ours = {"metadata": {"name": CLASS}, "spec": {"controllerName": CONTROLLER}}
        becomes(lambda: _is_created(owner, ours), "the cluster takes GatewayClasses")


def until_accepted(cluster: Cluster) -> None:
    """Wait until the GatewayClass says which features are supported, which the suite asks once."""
    with cluster.plane.client() as owner:
        becomes(lambda: _supports_something(owner), "the GatewayClass is told")


def namespaces(cluster: Cluster) -> frozenset[str]:
    with cluster.plane.client() as owner:
        return frozenset(each.metadata.name or "" for each in owner.list(Namespace) if each.metadata)


def until_gone(cluster: Cluster, but: frozenset[str]) -> None:
    """Wait until there are no namespaces but these: the suite deletes its own, and doesn't wait for it."""
    eventually(lambda: namespaces(cluster) <= but)


def _supports_something(owner: Client) -> bool:
    status = owner.get(CLASSES, CLASS).get("status") or {}
    return bool(status.get("supportedFeatures"))


def _is_created(owner: Client, document: Document) -> bool:
    try:
        owner.create(CLASSES.from_dict(document))
    except ApiError:  # the API server opens its place a moment after it took the definition
        return False
    return True
