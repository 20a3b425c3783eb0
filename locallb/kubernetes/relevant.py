"""Selects the objects that are read at all, from YAML or an API, and names each. Total: nothing raises.

Lists of any depth are opened; other kinds are ignored, but an object with an apparently misspelt kind is reported. Not
here: what objects mean (`object_parsing`, `gateway.kinds`, `ingress.parsing`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from locallb.gateway.kinds import KINDS, kind_of_object, parse_api_object, with_faults
from locallb.gateway.parsing import is_reference, parse_referred
from locallb.ingress.parsing import ROUTED_KINDS
from locallb.kubernetes import pod_ranges
from locallb.kubernetes.events import Identity
from locallb.kubernetes.service_parsing import LOAD_BALANCER
from locallb.model.fields import StructuralFault, at, text_of
from locallb.model.gateway_objects import GROUP, Gateway, GatewayClass, GatewayRoute, ListenerSet
from locallb.model.gateway_of_cluster import Ingress, IngressClass, ObjectOfCluster
from locallb.model.identities import ClusterName
from locallb.model.memory import AnyMemo
from locallb.model.texts import clipped, shown

Document: TypeAlias = Mapping[Any, Any]

VERSIONS = {
    "Service": "v1",
    "Node": "v1",
    "EndpointSlice": "discovery.k8s.io/v1",
    **pod_ranges.VERSIONS,
}
"""The kinds that are read, and the apiVersion of each."""
_DEEPEST = 50
"""Lists within lists that are opened; kubectl makes none, a loop would never end."""


def relevant(documents: Iterable[object]) -> tuple[list[Document], tuple[str, ...]]:
    """Open the lists among `documents` and keep the objects of the kinds that are read, in order.

    The notices name what is left out although it is of such a kind: another version of the API, a list that is none.
    """
    retained: list[Document] = []
    notices: list[str] = []
    for document in documents:
        for item in _opened(document, notices, 0):
            wrong = _wrong_version(item) or _misspelt(item)
            if wrong:
                notices.append(wrong)
            elif is_read(item):
                retained.append(item)
    return retained, tuple(notices)


def is_read(document: Document) -> bool:
    """Return whether an object is of a kind that is read."""
    if document.get("apiVersion") == VERSIONS.get(text_of(document.get("kind")), ""):
        return True
    return needed_by_gateways(document)


def opened(document: object) -> Iterator[Document]:
    """Return an object, or the objects of a list."""
    return _opened(document, [], 0)


def _opened(document: object, notices: list[str], depth: int) -> Iterator[Document]:
    """Return `document` or, if it is a list of Kubernetes, its items."""
    if not isinstance(document, Mapping):
        return
    kind = text_of(document.get("kind"))
    of, version = kind.removesuffix("List"), document.get("apiVersion")
    ours = kind.endswith("List") and of in {"", *VERSIONS} and version == VERSIONS.get(of, "v1")
    if not ours and not is_gateway_list(kind, version):
        yield document
        return
    items = document.get("items")
    if not isinstance(items, list | tuple | None) or depth == _DEEPEST:
        what = "lists nested too deeply" if depth == _DEEPEST else f"items that are {shown(items)}"
        notices.append(f"a {kind} is left out: it has {what}; give a plain list of objects")
        return
    for item in items or ():
        typed = of and isinstance(item, Mapping) and "kind" not in item
        yield from _opened({"kind": of, "apiVersion": version, **item} if typed else item, notices, depth + 1)


def _wrong_version(document: Document) -> str | None:
    """Explain that an object of a kind that is read lacks a version or has another one; None if neither.

    The same kind in another group (Knative's Service, say) is another thing.
    """
    if wrong := wrong_gateway_version(document):
        return f"{Identity.of(document)} is left out: {wrong}"
    right, version = VERSIONS.get(text_of(document.get("kind"))), document.get("apiVersion")
    if right is None or version == right or (isinstance(version, str) and _group(version) != _group(right)):
        return None
    written = "missing" if version is None else shown(version)
    return f"{Identity.of(document)} is left out: apiVersion is {written}; use {right}"


def _misspelt(document: Document) -> str | None:
    """Explain that an object's kind is unknown, with the probable one; None if it is known or has no similar one.

    Similar kinds differ by capitals or a plural only; an object with fields that only a Service has counts as one.
    """
    kind, version = document.get("kind"), document.get("apiVersion")
    if text_of(kind) in VERSIONS or (version is not None and version not in VERSIONS.values()):
        return None
    intended = _INTENDED.get(text_of(kind).lower())
    if intended is None and not _is_balancer(document):
        return None
    written = "missing" if kind is None else shown(kind)
    return f"{Identity.of(document)} is left out: kind is {written}; write {intended or 'Service'}"


def _is_balancer(document: Document) -> bool:
    spec = document.get("spec")
    return isinstance(spec, Mapping) and spec.get("type") == LOAD_BALANCER


_INTENDED = {f"{kind.lower()}{ending}": kind for kind in VERSIONS for ending in ("", "s")}
"""Misspellings of the kinds that are read."""


def kinds_of(documents: Iterable[object]) -> Iterator[str]:
    """Return the kind of each object among `documents`, lists opened; of a Service its type as well."""
    for document in documents:
        for item in _opened(document, [], 0):
            kind = clipped(text_of(item.get("kind"))) or "without a kind"
            yield f"{kind} of type {_type(item)}" if item.get("kind") == "Service" else kind


def _type(service: Document) -> str:
    return clipped(text_of(at(service, "spec", "type"))) or "ClusterIP"


def _group(version: str) -> str:
    return version.rpartition("/")[0]


Definitions: TypeAlias = Callable[[Document], Sequence[StructuralFault]]
"""Returns the faults by which an API server would refuse an object that never passed one."""
_READ = (Gateway, GatewayClass, ListenerSet, GatewayRoute, IngressClass, Ingress)


def needed_by_gateways(document: Document) -> bool:
    """Return whether an object is of a kind that only Gateway API or Ingresses need."""
    is_namespace = document.get("kind") == "Namespace" and document.get("apiVersion") == "v1"
    return is_namespace or is_reference(document) or kind_of_object(document, ROUTED_KINDS) is not None


def is_gateway_list(kind: str, version: object) -> bool:
    item = {"kind": kind.removesuffix("List"), "apiVersion": version}
    return kind.endswith("List") and kind_of_object(item, ROUTED_KINDS) is not None


def wrong_gateway_version(document: Document) -> str:
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
