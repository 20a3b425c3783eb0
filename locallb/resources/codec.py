"""Converts between JSON-like values and records (frozen Structs), by their own annotations.

A NamedTuple in one is no object of its own: its fields stand among the others. Of these, one with a
default may be missing, and isn't written while it has that; likewise a field that is given by name only. A property
that isn't known yet (in a preview) is the string UNKNOWN in its field, whatever the field's type; only the preview's
code meets it. Not here: what values mean.
"""

from __future__ import annotations

import types
from collections.abc import Mapping, Sequence
from contextlib import suppress
from enum import StrEnum
from typing import Any, TypeAlias, TypeVar, get_origin

from locallb.resources.exact import Odd, exactly
from locallb.resources.forms import ABSENT, form_of, is_record, shape
from locallb.resources.values import UNKNOWN, Values, holds_unknown

T = TypeVar("T")
_Failures: TypeAlias = "list[tuple[str, str]] | None"
_BLANKS: Mapping[object, object] = {str: "", int: 0, bool: False, tuple: (), Mapping: types.MappingProxyType({})}
_PLAIN = frozenset({str, bool, int, float, type(None)})
"""Types with values that are written as they are."""


class CodecError(Exception):
    """Properties that aren't of their type: pairs of the property's path and what is wrong with it."""

    def __init__(self, failures: Sequence[tuple[str, str]]) -> None:
        super().__init__("; ".join(f"{path}: {reason}" for path, reason in failures))
        self.failures = tuple(failures)


def is_unknown(value: object) -> bool:
    """Return whether a field isn't known yet."""
    return isinstance(value, str) and value == UNKNOWN


def decode(kind: type[T], properties: Values) -> T:
    """Read a record. Raises CodecError with every property that is missing, superfluous or of another type."""
    with suppress(Odd):
        return exactly(kind, properties)
    failures: list[tuple[str, str]] = []
    value = _record(kind, properties, "", failures)
    if failures:
        raise CodecError(failures)
    return value


def recall(kind: type[T], properties: Values) -> T:
    """Read a record from a state, perhaps written by another version: what is missing or odd there is blank."""
    with suppress(Odd):
        return exactly(kind, properties)
    return _record(kind, properties, "", None)


def encode(record: object) -> dict[str, Any]:
    """Write a record, keys sorted as the state has them."""
    form = form_of(type(record))
    given = form.properties(record)
    written = {name: value(given[name]) for name in form.names}
    for name, default in form.defaults.items():
        if given[name] == default:
            del written[name]
    return written


def value(item: object) -> Any:  # noqa: ANN401 - a JSON-like value
    """Write one value."""
    if type(item) in _PLAIN:
        return item
    if isinstance(item, StrEnum):
        return str(item)
    if isinstance(item, str | bool | int | float):
        return item
    if isinstance(item, Mapping):
        return {str(key): value(item[key]) for key in sorted(item)}
    if isinstance(item, Sequence):
        return [value(inner) for inner in item]
    return encode(item)


def _record(kind: type[T], properties: Values, path: str, failures: _Failures) -> T:
    form = form_of(kind)
    if failures is not None:
        existing = [name for name in properties if name not in form.hints and not name.startswith("__")]
        failures += [(path + name, f"isn't a property of {kind.__name__}") for name in existing]
    fields: dict[str, object] = {}
    for name, hint in form.hints.items():
        given = properties.get(name, form.defaults.get(name, ABSENT))
        hidden = not path and holds_unknown(given)
        fields[name] = UNKNOWN if hidden else _field(hint, given, path + name, failures)
    made: T = form.make(fields)
    return made


def _field(hint: object, given: object, path: str, failures: _Failures) -> object:
    try:
        if given is ABSENT:
            raise TypeError("is missing")  # noqa: TRY301 - told like a wrong type
        return _typed(hint, given, path, failures)
    except TypeError as error:
        if failures is not None:
            failures.append((path, str(error)))
        return _blank(hint)


def _typed(hint: object, given: object, path: str, failures: _Failures) -> object:
    """Read one value as `hint`. Raises TypeError; what is inside goes to `failures`."""
    if hint in {str, bool} and type(given) is hint:
        return given
    if isinstance(hint, type) and issubclass(hint, StrEnum) and isinstance(given, str):
        return _choice(hint, given)
    origin, inner = shape(hint)
    if origin is tuple and isinstance(given, Sequence) and not isinstance(given, str):
        return tuple(_field(inner, item, f"{path}[{number}]", failures) for number, item in enumerate(given))
    if isinstance(given, Mapping):
        if origin is Mapping:
            return {key: _field(inner, item, f"{path}[{key!r}]", failures) for key, item in given.items()}
        if is_record(hint):
            return _record(hint, given, f"{path}.", failures)
    if hint is int and not isinstance(given, bool) and isinstance(given, int | float) and int(given) == given:
        return int(given)
    raise TypeError(f"must be {_word(hint)}, not {_kind_of(given)}")


def _choice(hint: type[StrEnum], given: str) -> StrEnum:
    try:
        return hint(given)
    except ValueError:
        raise TypeError(f"must be {' or '.join(hint)}, not {given!r}") from None


def _kind_of(given: object) -> str:
    if given is None:
        return "null"
    kinds: Mapping[type, str] = {bool: "true or false", int: "a number", float: "a number", str: "a string"}
    return kinds.get(type(given), "an object" if isinstance(given, Mapping) else "a list")


def _blank(hint: object) -> object:
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return next(iter(hint))
    if is_record(hint):
        form = form_of(hint)
        return form.make({name: _blank(inner) for name, inner in form.hints.items()})
    return _BLANKS[get_origin(hint) or hint]


def _word(hint: object) -> str:
    terms: Mapping[object, str] = {str: "a string", int: "a whole number", bool: "true or false", tuple: "a list"}
    is_text = isinstance(hint, type) and issubclass(hint, StrEnum)
    return terms.get(str if is_text else get_origin(hint) or hint, "an object")
