"""Validation of hostnames, and the zone that each lies in.

A name is written in lower case and without the dot at its end; its first label may be `*`. Not here: who gets which
name (`records`).
"""

from __future__ import annotations

import re

LONGEST = 253
"""Characters of a name."""
_LABEL = re.compile(r"[a-z0-9_]([-a-z0-9_]{0,61}[a-z0-9_])?")
WILDCARD = "*"


def normal(text: str) -> str:
    """Return a name as it is compared."""
    return text.strip().lower().removesuffix(".")


def name_fault(name: str) -> str:
    """Return why this can't be a name, with the remedy; empty if it can."""
    if len(name) > LONGEST:
        return f"it has {len(name)} characters; use at most {LONGEST}"
    first, *rest = name.split(".")
    labels = rest if first == WILDCARD and rest else [first, *rest]
    if all(_LABEL.fullmatch(label) for label in labels):
        return ""
    return "use labels of at most 63 letters, digits and inner hyphens with dots between them, such as web.shop.test"


def is_wildcard(name: str) -> bool:
    """Return whether a name stands for all below another."""
    return name.startswith(f"{WILDCARD}.")


def is_hostname(name: str) -> bool:
    """Return whether a name may be that of a host: neither a wildcard nor underscores."""
    return not is_wildcard(name) and "_" not in name


def is_within(name: str, zone: str) -> bool:
    """Return whether a name is in a zone: its apex, or below it."""
    return name == zone or name.endswith(f".{zone}")
