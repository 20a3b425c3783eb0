"""Between plain JSON-like values and our frozen dataclasses, by the dataclasses' own annotations.

A property that isn't known yet (in a preview) is the string UNKNOWN in its field, whatever the field's type; only the
preview's code meets it. Not here: what values mean.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, TypeAlias, TypeVar, get_args, get_origin, get_type_hints

from pulumi.runtime.rpc import UNKNOWN

from locallb.resources.values import Values, holds_unknown

T = TypeVar("T")
_Failures: TypeAlias = "list[tuple[str, str]] | None"
_BLANKS: Mapping[object, object] = {str: "", int: 0, bool: False, tuple: (), Mapping: types.MappingProxyType({})}
_ABSENT = object()


class CodecError(Exception):
    """Properties that aren't of their type: pairs of the property's path and what is wrong with it."""

    def __init__(self, failures: Sequence[tuple[str, str]]) -> None:
        super().__init__("; ".join(f"{path}: {reason}" for path, reason in failures))
        self.failures = tuple(failures)


def is_unknown(value: object) -> bool:
    """Return whether a field isn't known yet."""
    return isinstance(value, str) and value == UNKNOWN


def decode(kind: type[T], properties: Values) -> T:
    """Read a dataclass. Raises CodecError with every property that is missing, superfluous or of another type."""
    failures: list[tuple[str, str]] = []
    value = _record(kind, properties, "", failures)
    if failures:
        raise CodecError(failures)
    return value


def recall(kind: type[T], properties: Values) -> T:
    """Read a dataclass from a state, perhaps written by another version: what is missing or odd there is blank."""
    return _record(kind, properties, "", None)


def encode(record: object) -> dict[str, Any]:
    """Write a dataclass, keys sorted as the state has them."""
    kind: Any = type(record)
    return {name: value(getattr(record, name)) for name in _sorted_names(kind)}


def value(item: object) -> Any:  # noqa: ANN401 - a JSON-like value
    """Write one value."""
    if isinstance(item, str | bool | int | float) or item is None:
        return item
    if isinstance(item, Mapping):
        return {str(key): value(item[key]) for key in sorted(item)}
    if isinstance(item, Sequence):
        return [value(inner) for inner in item]
    return encode(item)


def _record(kind: type[T], properties: Values, path: str, failures: _Failures) -> T:
    hints = _fields(kind)
    if failures is not None:
        known = [name for name in properties if name not in hints and not name.startswith("__")]
        failures += [(path + name, f"isn't a property of {kind.__name__}") for name in known]
    fields: dict[str, object] = {}
    for name, hint in hints.items():
        given = properties.get(name, _ABSENT)
        hidden = not path and holds_unknown(given)
        fields[name] = UNKNOWN if hidden else _field(hint, given, path + name, failures)
    return kind(**fields)


def _field(hint: object, given: object, path: str, failures: _Failures) -> object:
    try:
        if given is _ABSENT:
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
    origin, inner = _shape(hint)
    if origin is tuple and isinstance(given, Sequence) and not isinstance(given, str):
        return tuple(_field(inner, item, f"{path}[{number}]", failures) for number, item in enumerate(given))
    if isinstance(given, Mapping):
        if origin is Mapping:
            return {key: _field(inner, item, f"{path}[{key!r}]", failures) for key, item in given.items()}
        if isinstance(hint, type) and dataclasses.is_dataclass(hint):
            return _record(hint, given, f"{path}.", failures)
    if hint is int and not isinstance(given, bool) and isinstance(given, int | float) and int(given) == given:
        return int(given)
    raise TypeError(f"must be {_word(hint)}, not {_kind_of(given)}")


def _kind_of(given: object) -> str:
    if given is None:
        return "null"
    kinds: Mapping[type, str] = {bool: "true or false", int: "a number", float: "a number", str: "a string"}
    return kinds.get(type(given), "an object" if isinstance(given, Mapping) else "a list")


def _blank(hint: object) -> object:
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return hint(**{name: _blank(inner) for name, inner in _fields(hint).items()})
    return _BLANKS[get_origin(hint) or hint]


def _word(hint: object) -> str:
    words: Mapping[object, str] = {str: "a string", int: "a whole number", bool: "true or false", tuple: "a list"}
    return words.get(get_origin(hint) or hint, "an object")


@cache
def _shape(hint: Any) -> tuple[object, object]:  # noqa: ANN401 - any annotation
    """Return what an annotation is of, and of what it holds."""
    arguments = get_args(hint)
    return get_origin(hint) or hint, arguments[0 if get_origin(hint) is tuple else -1] if arguments else None


def _fields(kind: Any) -> Mapping[str, object]:  # noqa: ANN401 - any dataclass
    return _cached_fields(kind)


@cache
def _cached_fields(kind: Any) -> Mapping[str, object]:  # noqa: ANN401 - any dataclass
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind)}


@cache
def _sorted_names(kind: Any) -> tuple[str, ...]:  # noqa: ANN401 - any dataclass
    return tuple(sorted(_cached_fields(kind)))
