"""The client's types of objects: of Kubernetes' own kinds, and of kinds with a status that we write, in every version.

A cluster serves an object in all versions that it has of its kind, so that the first known version will do. Not here:
requests.
"""

from __future__ import annotations

from functools import cache
from typing import TypeVar, cast

from lightkube.core.decoders import decode_list
from lightkube.generic_resource import GenericNamespacedResource, create_global_resource, create_namespaced_resource
from lightkube.models.meta_v1 import ObjectMeta, Status

from locallb.config.registry import FRONTENDS
from locallb.gateway.kinds import ApiKind
from locallb.ingress.kinds import ROUTED_KINDS
from locallb.kubernetes.frontend import frontend
from locallb.model.identities import ObjectKind

_Type = TypeVar("_Type", bound=type)


def prepared(kind: _Type) -> _Type:
    """Return a type of objects of which lists are asked for, after one was read.

    The client makes a struct for each, and msgspec looks at its fields when the first list is read. It doesn't mind
    another thread that is about the same: two at once can crash the process.
    """
    decode_list(b'{"items": [], "metadata": {}}', kind)
    return kind


ObjectMeta.from_dict({})
Status.from_dict({})  # likewise structs, which threads use
SLICE = prepared(create_namespaced_resource("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices"))
EVENT = create_namespaced_resource("events.k8s.io", "v1", "Event", "events")
LEASE = create_namespaced_resource("coordination.k8s.io", "v1", "Lease", "leases")
NODE = prepared(create_global_resource("", "v1", "Node", "nodes"))
NAMESPACE = prepared(create_global_resource("", "v1", "Namespace", "namespaces"))
SECRET = create_namespaced_resource("", "v1", "Secret", "secrets")
CONFIG_MAP = create_namespaced_resource("", "v1", "ConfigMap", "configmaps")
POD = prepared(create_namespaced_resource("", "v1", "Pod", "pods"))


@cache
def namespaced(kind: ObjectKind) -> type[GenericNamespacedResource]:
    """Return the client's type of a frontend."""
    table = frontend(kind)
    group, _, version = table.api_version.rpartition("/")
    return prepared(create_namespaced_resource(group, version, table.name, table.plural))


@cache
def written_types(kind: ObjectKind) -> tuple[type[GenericNamespacedResource], ...]:
    """Return the client's types of a kind, the preferred version first.

    The client takes a namespace for those without any, too, and leaves it out.
    """
    if kind.value in FRONTENDS:
        return (namespaced(kind),)
    existing = _routed(kind)
    create = create_namespaced_resource if existing.namespaced else create_global_resource
    made = tuple(create(existing.group, version, existing.name, existing.plural) for version in existing.versions)
    return cast("tuple[type[GenericNamespacedResource], ...]", made)


def object_name(kind: ObjectKind, namespace: str, name: str) -> str:
    """Return how an object is called in a sentence."""
    shown = frontend(kind).name if kind.value in FRONTENDS else _routed(kind).name
    return f"{shown} {namespace}/{name}" if namespace else f"{shown} {name}"


def _routed(kind: ObjectKind) -> ApiKind:
    return next(existing for existing in ROUTED_KINDS.values() if existing.plural == kind.value)
