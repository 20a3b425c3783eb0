"""The source `kind` of a stack's configuration: every cluster of kind on this host, or those that are named."""

from __future__ import annotations

from collections.abc import Mapping

from locallb.config.settings import KindSource
from locallb.config.values import Mistakes
from locallb.model.formatting import shown

_EXAMPLE = "{kind: all} or {kind: [shop, test]}"


def parse_kind(mistakes: Mistakes, sources: object) -> KindSource | None:
    """Read the entry `kind` among the sources; None where there is none."""
    listed = sources if isinstance(sources, list | tuple) else ()
    found = [
        (f"sources[{number}].kind", entry["kind"])
        for number, entry in enumerate(listed)
        if isinstance(entry, Mapping) and set(entry) >= {"kind"} and not {"manifests", "kubernetes"} & set(entry)
    ]
    for key, _ in found[1:]:
        mistakes.add(key, f"there is one before it; write all names into one, {_EXAMPLE}")
    return _clusters(mistakes, *found[0]) if found else None


def _clusters(mistakes: Mistakes, key: str, value: object) -> KindSource | None:
    if value == "all":
        return KindSource()
    if not isinstance(value, list | tuple) or not value:
        mistakes.add(key, f"{shown(value)} names no clusters; write {_EXAMPLE}")
        return None
    names = frozenset(
        name for each, item in mistakes.items(key, value, _EXAMPLE) if (name := mistakes.label(each, item, "shop"))
    )
    return KindSource(names)
