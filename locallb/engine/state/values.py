"""Property values as plain Python data, and what differs between two of them.

Plain values are None, bool, int, float, str, lists and dicts. A number without a fraction is an int, so that JSON shows
it as the official command line does. An unknown value is the string UNKNOWN, as on Pulumi's wire. Not here: their
other shapes (`engine.sdk_wire`); a state is read without the SDK.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

from msgspec import Struct

from locallb.engine.state.errors import Unsupported

Value: TypeAlias = "bool | int | float | str | list[Value] | dict[str, Value] | None"
Properties: TypeAlias = Mapping[str, Value]

UNKNOWN = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"
SIGNATURE = "4dabf18193072939515e22adb298388d"
"""The key that marks what is no plain value, on the wire and in a state."""
_LARGEST_EXACT = 2**53


def number(value: float) -> int | float:
    """Return a whole number as int, as JSON shows it."""
    if not math.isfinite(value):
        raise Unsupported(f"the number {value}")
    whole = int(value) if abs(value) <= _LARGEST_EXACT else value
    return whole if whole == value else value


def has_unknown(value: Value) -> bool:
    """Return whether an unknown value is inside."""
    if isinstance(value, dict):
        return any(has_unknown(item) for item in value.values())
    if isinstance(value, list):
        return any(has_unknown(item) for item in value)
    return value == UNKNOWN


def without_unknown(properties: Properties) -> dict[str, Value]:
    """Drop the properties that hold something unknown: the sentinel must never get into a state."""
    return {key: value for key, value in properties.items() if not has_unknown(value)}


class PropertyChange(Struct, frozen=True):
    """One property that differs: its path (`ports[0].name`), the old and the new value, None where there is none."""

    path: str
    kind: str  # add, update or delete
    old: Value
    new: Value
    replaces: bool = False


_INTERNAL = "__"
"""How properties begin that a provider keeps for itself, as `__defaults` of the official plugins."""


def changes_between(old: Properties, new: Properties, replaces: Sequence[str] = ()) -> tuple[PropertyChange, ...]:
    """List the leaves that differ; `replaces` are the paths or top-level keys that force a replacement."""
    forced = tuple(replaces)

    def force(path: str) -> bool:
        return any(
            path == key or path.startswith((f"{key}.", f"{key}[")) or key.startswith(f"{path}.") for key in forced
        )

    differences = _differences("", dict(old), dict(new))
    return tuple(PropertyChange(path, kind, was, now, force(path)) for path, kind, was, now in differences)


def _differences(path: str, old: Value, new: Value) -> Iterator[tuple[str, str, Value, Value]]:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted(key for key in {*old, *new} if not key.startswith(_INTERNAL)):
            yield from _one_key(f"{path}.{key}" if path else key, key, old, new)
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for index, (was, now) in enumerate(zip(old, new, strict=True)):
            yield from _differences(f"{path}[{index}]", was, now)
    elif old != new or isinstance(old, bool) != isinstance(new, bool):
        yield path, "update", old, new


def _one_key(
    path: str, key: str, old: dict[str, Value], new: dict[str, Value]
) -> Iterator[tuple[str, str, Value, Value]]:
    if key not in new:
        yield path, "delete", old[key], None
    elif key not in old:
        yield path, "add", None, new[key]
    else:
        yield from _differences(path, old[key], new[key])
