"""Discovery of Gateway API: which kinds a cluster has, and in which versions, so that no other is requested.

A cluster without the group is asked one question, one with every kind in v1 two. Not here: how often.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from locallb.gateway.kinds import KINDS
from locallb.kubernetes.access.errors import Fault, KubeError
from locallb.kubernetes.answers import Object
from locallb.kubernetes.api.feed import Feed, Place
from locallb.model.fields import objects_of
from locallb.model.gateway.objects import GROUP
from locallb.model.snapshot import Access

ROOT = f"/apis/{GROUP}"
NAMESPACES: Place = ("v1", "/api/v1/namespaces")
_RANKS = {version: rank for rank, version in enumerate(("v1", "v1beta1", "v1alpha3", "v1alpha2"))}


def discovery(access: Access) -> Feed:
    """Return what asks; to be closed. Raises KubeError."""
    return Feed(access, "kind of Gateway API", (GROUP, ROOT))


def gateway_kinds(asking: Feed) -> Mapping[str, Place]:
    """Return where the kinds that a cluster has are listed, each in the preferred version. Raises KubeError."""
    group = _checked(asking.document(ROOT), "APIGroup")
    there = _names(group, "versions", "version")
    found: dict[str, Place] = {}
    for version in sorted(there & _RANKS.keys(), key=_RANKS.__getitem__):
        missing = [kind for kind in KINDS.values() if kind.name not in found and version in kind.versions]
        if missing:
            plurals = _names(_checked(asking.document(f"{ROOT}/{version}"), "APIResourceList"), "resources", "name")
            found |= {
                kind.name: (f"{GROUP}/{version}", kind.path(version)) for kind in missing if kind.plural in plurals
            }
    return found


def _checked(document: Object | None, kind: str) -> Object:
    """Raise KubeError for what doesn't count as an empty answer."""
    if document is not None and document.get("kind") != kind:
        raise KubeError(Fault.UNREACHABLE, f"{ROOT} answers with something that isn't an {kind}")
    return document or {}


def _names(document: Mapping[str, Any], within: str, key: str) -> set[str]:
    return {entry[key] for entry in objects_of(document.get(within)) if isinstance(entry.get(key), str)}
