"""Selects the objects that are read at all, from YAML or an API, and names each. Total: nothing raises.

Lists of any depth are opened; other kinds are ignored, but an object with an apparently misspelt kind is reported. Not
here: what objects mean (`objects`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeAlias

from locallb.kubernetes import pod_ranges
from locallb.kubernetes.events import Identity
from locallb.kubernetes.parsing import gateway_api as parse_gateway_api
from locallb.kubernetes.parsing.service import LOAD_BALANCER
from locallb.model.fields import at, text_of
from locallb.model.texts import clipped, shown

Document: TypeAlias = Mapping[object, object]

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
    return parse_gateway_api.is_read(document)


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
    if not ours and not parse_gateway_api.is_list(kind, version):
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
    if wrong := parse_gateway_api.wrong_version(document):
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
