"""Objects for Gateway API and Ingresses: their own kinds, and the kinds that they refer to.

Not here: what such an object means (`gateway.kinds`, `ingress.parsing`), and Services of type LoadBalancer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from locallb.gateway.kinds import KINDS, kind_of_object, parse_api_object, with_faults
from locallb.gateway.parsing.policies import is_reference, parse_referred
from locallb.ingress.parsing import ROUTED_KINDS
from locallb.model.fields import StructuralFault
from locallb.model.gateway_objects import GROUP, Gateway, GatewayClass, GatewayRoute, ListenerSet
from locallb.model.gateway_of_cluster import Ingress, IngressClass, ObjectOfCluster
from locallb.model.identities import ClusterName
from locallb.model.memory import AnyMemo
from locallb.model.texts import shown

Document = Mapping[Any, Any]
Definitions: TypeAlias = Callable[[Document], Sequence[StructuralFault]]
"""Returns the faults by which an API server would refuse an object that never passed one."""
_READ = (Gateway, GatewayClass, ListenerSet, GatewayRoute, IngressClass, Ingress)


def is_read(document: Document) -> bool:
    """Return whether an object is of a kind that only Gateway API or Ingresses need."""
    is_namespace = document.get("kind") == "Namespace" and document.get("apiVersion") == "v1"
    return is_namespace or is_reference(document) or kind_of_object(document, ROUTED_KINDS) is not None


def is_list(kind: str, version: object) -> bool:
    item = {"kind": kind.removesuffix("List"), "apiVersion": version}
    return kind.endswith("List") and kind_of_object(item, ROUTED_KINDS) is not None


def wrong_version(document: Document) -> str:
    """Return the field and remedy for an API version of Gateway API that isn't read; empty otherwise."""
    kind, version = document.get("kind"), document.get("apiVersion")
    existing = KINDS.get(kind) if isinstance(kind, str) else None
    ours = existing and isinstance(version, str) and version.startswith(f"{GROUP}/")
    if not existing or not ours or kind_of_object(document):
        return ""
    return f"apiVersion is {shown(version)}; use {GROUP}/{existing.versions[0]}"


def parse_gateway_api(cluster: ClusterName, document: Document, existing: AnyMemo) -> tuple[ObjectOfCluster, ...]:
    """Read what of an object concerns Gateway API. Never raises."""
    return existing.of(("gateway", id(document)), _parsed, cluster, document)  # type: ignore[no-any-return]


def _parsed(cluster: ClusterName, document: Document) -> tuple[ObjectOfCluster, ...]:
    read = parse_api_object(document, ROUTED_KINDS) or parse_referred(document)
    return (ObjectOfCluster(cluster, read),) if read else ()


def held_against(
    definitions: Definitions, cluster: ClusterName, document: Document, read: tuple[ObjectOfCluster, ...]
) -> tuple[tuple[ObjectOfCluster, ...], str]:
    """Refuse the parts of an object that violate its definition; return the reason if no part is left to report it."""
    faults = definitions(document) if read and kind_of_object(document) else ()
    if not faults:
        return read, ""
    checked = [with_faults(each.object, document, faults) for each in read]
    used = tuple(ObjectOfCluster(cluster, each) for each in checked if each)
    return used, "" if used else faults[0].sentence


def of_use(objects: Iterable[ObjectOfCluster]) -> tuple[ObjectOfCluster, ...]:
    """Return them all where any is of Gateway API or an Ingress; Services and Namespaces alone mean nothing."""
    listed = tuple(objects)
    return listed if any(isinstance(cluster_object.object, _READ) for cluster_object in listed) else ()
