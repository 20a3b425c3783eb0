"""The identity of an object within its cluster. Not here: what the object means (`parsing`)."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from locallb.gateway.kinds import CLUSTER_SCOPED
from locallb.kubernetes import pod_ranges
from locallb.model.fields import object_of, text_of
from locallb.model.formatting import clipped

_OF_CLUSTERS = {"Node", "Namespace", *pod_ranges.VERSIONS, *CLUSTER_SCOPED, "IngressClass"}
"""Kinds without a namespace."""


class Identity(Struct, frozen=True, order=True):
    """Name of an object within its cluster; fields that aren't texts are empty."""

    kind: str
    namespace: str
    name: str

    @classmethod
    def of(cls, document: Mapping[object, object]) -> Identity:
        """Return what `document` is called."""
        raw = object_of(document.get("metadata"))
        kind, namespace, name = map(text_of, (document.get("kind"), raw.get("namespace"), raw.get("name")))
        return cls(kind, "" if kind in _OF_CLUSTERS else namespace or "default", name)

    def __str__(self) -> str:
        name = clipped(self.name) or "(no name)"
        return f"{self.kind} {name}" if self.kind in _OF_CLUSTERS else f"{self.kind} {clipped(self.namespace)}/{name}"
