"""JSON-like values of properties, with a mark for what isn't known yet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

UNKNOWN = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"
"""Stands for such a value, in Pulumi's protocol too."""
Values: TypeAlias = Mapping[str, Any]
"""Properties as JSON would have them; a number without a fraction is an int."""


def holds_unknown(value: object) -> bool:
    """Return whether a value, or anything in it, isn't known yet."""
    if isinstance(value, str):
        return value == UNKNOWN
    if isinstance(value, Mapping):
        return any(holds_unknown(item) for item in value.values())
    return isinstance(value, Sequence) and any(holds_unknown(item) for item in value)
