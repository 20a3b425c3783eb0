"""A plan as bytes: unlike `==`, these also tell True from 1, a text from an enumeration, and the order of a mapping."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import Any

from msgspec import Struct

_PLAIN = frozenset((str, int, bool, float, bytes, type(None)))


def spelled(value: object) -> bytes:
    """Return everything that a value consists of, by type and in order."""
    lines: list[str] = []
    _spell(value, lines.append)
    return "\n".join(lines).encode()


def _spell(value: object, add: Callable[[str], None]) -> None:
    """Add a line for each part; one that is empty or single is a part as well."""
    kind = type(value)
    add(kind.__name__)
    if kind in _PLAIN:
        add(repr(value))
    elif isinstance(value, Struct) or dataclasses.is_dataclass(value):
        for name in _names(value):
            add(name)
            _spell(getattr(value, name), add)
    elif isinstance(value, tuple | list):
        add(str(len(value)))
        for item in value:
            _spell(item, add)
    elif isinstance(value, Mapping):
        add(str(len(value)))
        for key, item in value.items():
            _spell(key, add)
            _spell(item, add)
    elif isinstance(value, AbstractSet):
        for each in sorted(map(repr, value)):
            add(each)
    else:
        add(repr(value))


def _names(value: Any) -> Iterable[str]:  # noqa: ANN401 - of any class with fields
    if isinstance(value, Struct):
        return value.__struct_fields__
    return (field.name for field in dataclasses.fields(value))
