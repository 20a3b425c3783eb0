"""Parses the keys `classes`, `gatewayClasses`, `namespaces` and `selector`; a pool has the last two as well."""

from __future__ import annotations

from collections.abc import Mapping

from locallb.config.settings import Classes
from locallb.config.values import Mistakes
from locallb.model.formatting import clipped, shown

_CLASSES = "{default: true, names: [local-lb.dev/local]}"
_NAMES = "a list such as [local-lb.dev/local]"


def parse_classes(mistakes: Mistakes, value: object) -> Classes:
    """Read the key `classes`. A name may be empty: some controllers take that class for the default one."""
    entry = mistakes.mapping("classes", value, _CLASSES)
    mistakes.unknown("classes.", entry, ("default", "names"))
    entries = mistakes.items("classes.names", entry.get("names", []), _NAMES)
    names = frozenset(item if item == "" else mistakes.text(item_key, item, _NAMES) for item_key, item in entries)
    return Classes(mistakes.flag("classes.default", entry.get("default", True)), names)


def parse_gateway_classes(mistakes: Mistakes, value: object) -> frozenset[str] | None:
    """Read the key `gatewayClasses`; absent, every GatewayClass of our controller counts."""
    if value is None:
        return None
    entries = mistakes.items("gatewayClasses", value, "a list such as [local]")
    return frozenset(name for key, item in entries if (name := mistakes.text(key, item, "a name such as local")))


def parse_namespaces(mistakes: Mistakes, key: str, value: object) -> frozenset[str]:
    """Read a list of namespaces."""
    entries = mistakes.items(key, value, "a list such as [shop]")
    return frozenset(name for item_key, item in entries if (name := mistakes.label(item_key, item, "shop")))


def parse_selector(mistakes: Mistakes, key: str, value: object) -> Mapping[str, str]:
    """Read labels that a Service must have, all of them."""
    selector = {}
    for label, wanted in mistakes.mapping(key, value, "labels such as {team: web}").items():
        if isinstance(wanted, str):
            selector[label] = wanted
        else:
            mistakes.add(f"{key}.{clipped(label)}", f"must be a text, not {shown(wanted)}; write it in quotes")
    return selector
