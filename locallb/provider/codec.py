"""Between the protocol's property values and our frozen dataclasses, by the dataclasses' own annotations.

A property that isn't known yet (in a preview) is the string UNKNOWN in its field, whatever the field's type; only the
preview's code meets it. Not here: what values mean.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from pulumi.provider.experimental.property_value import Computed, PropertyValue
from pulumi.runtime.rpc import UNKNOWN

T = TypeVar("T")
Properties = Mapping[str, PropertyValue]
_BLANKS: Mapping[object, object] = {str: "", int: 0, bool: False, tuple: (), Mapping: types.MappingProxyType({})}


class CodecError(Exception):
    """Properties that aren't of their type: pairs of the property's path and what is wrong with it."""

    def __init__(self, failures: Sequence[tuple[str, str]]) -> None:
        super().__init__("; ".join(f"{path}: {reason}" for path, reason in failures))
        self.failures = tuple(failures)


def is_unknown(value: object) -> bool:
    """Tell whether a field isn't known yet."""
    return isinstance(value, str) and value == UNKNOWN


def decode(kind: type[T], properties: Properties) -> T:
    """Read a dataclass. Raises CodecError with every property that is missing, superfluous or of another type."""
    failures: list[tuple[str, str]] = []
    value = _record(kind, properties, "", failures)
    if failures:
        raise CodecError(failures)
    return value


def recall(kind: type[T], properties: Properties) -> T:
    """Read a dataclass from a state, perhaps written by another version: what is missing or odd there is blank."""
    return _record(kind, properties, "", None)


def encode(record: object) -> dict[str, PropertyValue]:
    """Write a dataclass."""
    return {name: value(getattr(record, name)) for name in _fields(type(record))}


def value(item: object) -> PropertyValue:
    """Write one value."""
    if isinstance(item, bool | str) or item is None:
        return PropertyValue(item)
    if isinstance(item, int | float):
        return PropertyValue(float(item))
    if isinstance(item, Mapping):
        return PropertyValue({str(key): value(inner) for key, inner in item.items()})
    if isinstance(item, Sequence):
        return PropertyValue([value(inner) for inner in item])
    return PropertyValue(encode(item))


def plain(properties: Properties) -> Iterator[tuple[str, PropertyValue]]:
    """Leave out the marks of secrets and dependencies, so that equal values compare equal."""
    for name, given in properties.items():
        yield name, _plain(given)


def _plain(given: PropertyValue) -> PropertyValue:
    inner = given.value
    if isinstance(inner, Computed):
        return PropertyValue(UNKNOWN)
    if isinstance(inner, Mapping):
        return PropertyValue(dict(plain(inner)))
    if isinstance(inner, Sequence) and not isinstance(inner, str):
        return PropertyValue([_plain(item) for item in inner])
    return PropertyValue(inner)


def _record(kind: type[T], properties: Properties, path: str, failures: list[tuple[str, str]] | None) -> T:
    hints = _fields(kind)
    if failures is not None:
        known = [name for name in properties if name not in hints and not name.startswith("__")]
        failures += [(path + name, f"isn't a property of {kind.__name__}") for name in known]
    fields = {name: _field(hint, properties.get(name), path + name, failures) for name, hint in hints.items()}
    return kind(**fields)


def _field(hint: object, given: PropertyValue | None, path: str, failures: list[tuple[str, str]] | None) -> object:
    if given is not None and _holds_unknown(given):
        return UNKNOWN
    try:
        if given is None:
            raise TypeError("is missing")  # noqa: TRY301 - told like a wrong type
        return _typed(hint, given.value, path, failures)
    except TypeError as error:
        if failures is not None:
            failures.append((path, str(error)))
        return _blank(hint)


def _typed(hint: object, given: object, path: str, failures: list[tuple[str, str]] | None) -> object:
    """Read one value as `hint`. Raises TypeError; what is inside goes to `failures`."""
    origin = get_origin(hint) or hint
    if origin is tuple and isinstance(given, Sequence) and not isinstance(given, str):
        inner = get_args(hint)[0]
        return tuple(_field(inner, item, f"{path}[{number}]", failures) for number, item in enumerate(given))
    if isinstance(given, Mapping):
        if origin is Mapping:
            inner = get_args(hint)[1]
            return {key: _field(inner, item, f"{path}[{key!r}]", failures) for key, item in given.items()}
        if isinstance(hint, type) and dataclasses.is_dataclass(hint):
            return _record(hint, given, f"{path}.", failures)
    if hint is int and isinstance(given, float) and given.is_integer():
        return int(given)
    if hint in (str, bool) and type(given) is hint:
        return given
    raise TypeError(f"must be {_word(hint)}, not {'null' if given is None else type(given).__name__}")


def _holds_unknown(given: PropertyValue) -> bool:
    inner = given.value
    if isinstance(inner, Mapping):
        return any(_holds_unknown(item) for item in inner.values())
    if isinstance(inner, Sequence) and not isinstance(inner, str):
        return any(_holds_unknown(item) for item in inner)
    return isinstance(inner, Computed) or is_unknown(inner)


def _blank(hint: object) -> object:
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return hint(**{name: _blank(inner) for name, inner in _fields(hint).items()})
    return _BLANKS[get_origin(hint) or hint]


def _word(hint: object) -> str:
    words: Mapping[object, str] = {str: "a string", int: "a whole number", bool: "true or false", tuple: "a list"}
    return words.get(get_origin(hint) or hint, "an object")


def _fields(kind: Any) -> Mapping[str, object]:  # noqa: ANN401 - any dataclass
    return _cached_fields(kind)


@cache
def _cached_fields(kind: Any) -> Mapping[str, object]:  # noqa: ANN401 - any dataclass
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind)}
