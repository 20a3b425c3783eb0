"""Discovery of the kinds in which a CNI keeps pod ranges, so that no other is requested.

A cluster without such a CNI is asked two questions. Not here: how often, and what the objects say (`pod_ranges`).
"""

from __future__ import annotations

from collections.abc import Mapping

from locallb.kubernetes.access.errors import Fault, KubeError
from locallb.kubernetes.api.feed import Feed, Place
from locallb.kubernetes.pod_ranges import CALICO, CILIUM, VERSIONS
from locallb.model.snapshot import Access

PLURALS = {CALICO: "blockaffinities", CILIUM: "ciliumnodes"}


def range_discovery(access: Access) -> Feed:
    """Return what asks; to be closed. Raises KubeError."""
    return Feed(access, "kind of a CNI", (VERSIONS[CALICO], f"/apis/{VERSIONS[CALICO]}"))


def range_kinds(asking: Feed) -> Mapping[str, Place]:
    """Return where the kinds that a cluster has are listed. Raises KubeError."""
    return {
        kind: (version, f"/apis/{version}/{PLURALS[kind]}")
        for kind, version in VERSIONS.items()
        if PLURALS[kind] in _resources(asking, f"/apis/{version}")
    }


def _resources(asking: Feed, path: str) -> frozenset[str]:
    """Return the plurals of the kinds of a group's version; nothing where there is no such group."""
    document = asking.document(path)
    if document is None:
        return frozenset()
    listed = document.get("resources")
    if document.get("kind") != "APIResourceList" or not isinstance(listed, list):
        raise KubeError(Fault.UNREACHABLE, f"{path} answers with something that isn't an APIResourceList")
    names = (entry.get("name") for entry in listed if isinstance(entry, Mapping))
    return frozenset(name for name in names if isinstance(name, str))
