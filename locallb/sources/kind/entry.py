"""The configuration entry of kind clusters: every cluster on this host, or the named ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from msgspec import Struct

from locallb.config.registry import CLASSES, LOOPBACK_BACKENDS
from locallb.config.values import Mistakes
from locallb.model.texts import shown

_EXAMPLE = "{kind: all} or {kind: [shop, test]}"


class KindClusters(Struct, frozen=True):
    """Clusters that kind made on this host's Docker."""

    names: frozenset[str] = frozenset()
    """Their names; empty for all."""
    loopback_backends: bool = False
    """Whether their Nodes and endpoints may have addresses of this host's loopback."""
    classes: bool = True
    """Whether they get a GatewayClass and an IngressClass `local-lb`."""
    type: ClassVar[str] = "kind"
    name: ClassVar[str] = ""
    place: ClassVar[str] = "kind"
    live: ClassVar[bool] = True
    is_foreign: ClassVar[bool] = False
    is_administered: ClassVar[bool] = True


class KindEntry(Struct, frozen=True):
    """All of them, or their names."""

    keys: tuple[str, ...] = ("kind", LOOPBACK_BACKENDS, CLASSES)
    finds: bool = True
    single_entry_example: str = _EXAMPLE

    def parse(self, mistakes: Mistakes, key: str, entry: Mapping[str, object]) -> KindClusters | None:
        entry_key, key, value = key, f"{key}.kind", entry["kind"]
        loopback = mistakes.flag(f"{entry_key}.{LOOPBACK_BACKENDS}", entry.get(LOOPBACK_BACKENDS, False))
        classes = mistakes.flag(f"{entry_key}.{CLASSES}", entry.get(CLASSES, True))
        if value == "all":
            return KindClusters(loopback_backends=loopback, classes=classes)
        if not isinstance(value, list | tuple) or not value:
            mistakes.add(key, f"{shown(value)} names no clusters; write {_EXAMPLE}")
            return None
        names = frozenset(
            name
            for item_key, item in mistakes.items(key, value, _EXAMPLE)
            if (name := mistakes.label(item_key, item, "shop"))
        )
        return KindClusters(names, loopback, classes)


ENTRY = KindEntry()
