"""A plan as bytes: unlike `==`, these also tell True from 1, a text from an enumeration, and the order of a mapping."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet

from msgspec import Struct


def spelled(value: object) -> bytes:
    """Return everything that a value consists of, by type and in order."""
    return "\n".join(_lines(value)).encode()


def _lines(value: object) -> Iterator[str]:
    """Return a line for each part; one that is empty or single is a part as well."""
    yield type(value).__name__
    if isinstance(value, Struct):
        for name in value.__struct_fields__:
            yield name
            yield from _lines(getattr(value, name))
    elif dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            yield field.name
            yield from _lines(getattr(value, field.name))
    elif isinstance(value, Mapping):
        yield str(len(value))
        for key, item in value.items():
            yield from (*_lines(key), *_lines(item))
    elif isinstance(value, AbstractSet):
        yield from sorted(map(repr, value))
    elif isinstance(value, tuple | list):
        yield str(len(value))
        for item in value:
            yield from _lines(item)
    else:
        yield repr(value)
