"""A cluster that has our IngressClass and gives local-lb the rights of deploy/rbac-ingresses.yaml, and no others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from lightkube import Client
from lightkube.generic_resource import create_global_resource, create_namespaced_resource

_RBAC = "rbac.authorization.k8s.io"
ROLE = create_global_resource(_RBAC, "v1", "ClusterRole", "clusterroles")
BINDING = create_global_resource(_RBAC, "v1", "ClusterRoleBinding", "clusterrolebindings")
IN_NAMESPACE = create_namespaced_resource(_RBAC, "v1", "RoleBinding", "rolebindings")
INGRESS: Any = create_namespaced_resource("networking.k8s.io", "v1", "Ingress", "ingresses")
CLASS = create_global_resource("networking.k8s.io", "v1", "IngressClass", "ingressclasses")
SUBJECT = {"kind": "User", "name": "local-lb", "apiGroup": _RBAC}
_MANIFEST = Path(__file__).resolve().parents[2] / "deploy" / "rbac-ingresses.yaml"


@contextmanager
def ingress_rights(client: Client, secrets_in: Sequence[str] = ()) -> Iterator[None]:
    """Give them, and those to Secrets of some namespaces; take them away afterwards, with all Ingresses."""
    klass, role, binding, secrets = yaml.safe_load_all(_MANIFEST.read_text())
    client.create(CLASS.from_dict(klass))
    for each in (role, secrets):
        client.create(ROLE.from_dict(each))
    client.create(BINDING.from_dict({**binding, "subjects": [SUBJECT]}))
    name = secrets["metadata"]["name"]
    for namespace in secrets_in:
        present = {"metadata": {"name": name}, "roleRef": {**binding["roleRef"], "name": name}, "subjects": [SUBJECT]}
        client.create(IN_NAMESPACE.from_dict(present), namespace=namespace)
    try:
        yield
    finally:
        for item in client.list(INGRESS, namespace="*"):
            client.delete(INGRESS, item["metadata"]["name"], namespace=item["metadata"]["namespace"])
        for namespace in secrets_in:
            client.delete(IN_NAMESPACE, name, namespace=namespace)
        client.delete(BINDING, binding["metadata"]["name"])
        for each in (role, secrets):
            client.delete(ROLE, each["metadata"]["name"])
        client.delete(CLASS, klass["metadata"]["name"])
