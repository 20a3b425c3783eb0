"""Between plain JSON-like values and our frozen dataclasses, by the dataclasses' own annotations.

A NamedTuple in a dataclass is no object of its own: its fields stand among the dataclass's. Of these, one with a
default may be missing, and isn't written while it has that; likewise a field that is given by name only. A property
that isn't known yet (in a preview) is the string UNKNOWN in its field, whatever the field's type; only the preview's
code meets it. Not here: what values mean.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
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
    form = _form(type(record))
    given = form.properties(record)
    return {name: value(given[name]) for name in form.names if given[name] != form.defaults.get(name, _ABSENT)}


def value(item: object) -> Any:  # noqa: ANN401 - a JSON-like value
    """Write one value."""
    if isinstance(item, StrEnum):
        return str(item)
    if isinstance(item, str | bool | int | float) or item is None:
        return item
    if isinstance(item, Mapping):
        return {str(key): value(item[key]) for key in sorted(item)}
    if isinstance(item, Sequence):
        return [value(inner) for inner in item]
    return encode(item)


def _record(kind: type[T], properties: Values, path: str, failures: _Failures) -> T:
    form = _form(kind)
    if failures is not None:
        known = [name for name in properties if name not in form.hints and not name.startswith("__")]
        failures += [(path + name, f"isn't a property of {kind.__name__}") for name in known]
    fields: dict[str, object] = {}
    for name, hint in form.hints.items():
        given = properties.get(name, form.defaults.get(name, _ABSENT))
        hidden = not path and holds_unknown(given)
        fields[name] = UNKNOWN if hidden else _field(hint, given, path + name, failures)
    made: T = form.make(fields)
    return made


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
    if isinstance(hint, type) and issubclass(hint, StrEnum) and isinstance(given, str):
        return _choice(hint, given)
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
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        form = _form(hint)
        return form.make({name: _blank(inner) for name, inner in form.hints.items()})
    return _BLANKS[get_origin(hint) or hint]


def _word(hint: object) -> str:
    words: Mapping[object, str] = {str: "a string", int: "a whole number", bool: "true or false", tuple: "a list"}
    is_text = isinstance(hint, type) and issubclass(hint, StrEnum)
    return words.get(str if is_text else get_origin(hint) or hint, "an object")


@cache
def _shape(hint: Any) -> tuple[object, object]:  # noqa: ANN401 - any annotation
    """Return what an annotation is of, and of what it holds."""
    arguments = get_args(hint)
    return get_origin(hint) or hint, arguments[0 if get_origin(hint) is tuple else -1] if arguments else None


@dataclass(frozen=True, slots=True)
class _Form:
    """What a dataclass is as properties."""

    kind: Any
    fields: tuple[str, ...]
    flat: Mapping[str, Any]
    """NamedTuples by field: their fields are properties themselves."""
    hints: Mapping[str, object]
    """By property."""
    names: tuple[str, ...]
    """Properties, sorted as the state has them."""
    defaults: Mapping[str, object]

    def make(self, given: Mapping[str, object]) -> Any:  # noqa: ANN401 - of `kind`
        """Make it of its properties."""
        inner = {field: kind(*(given[name] for name in kind._fields)) for field, kind in self.flat.items()}
        return self.kind(**{field: inner[field] if field in inner else given[field] for field in self.fields})

    def properties(self, record: Any) -> Mapping[str, object]:  # noqa: ANN401 - of `kind`
        """Return its properties."""
        given = {field: getattr(record, field) for field in self.fields}
        for field in self.flat:
            given |= given.pop(field)._asdict()
        return given


def _form(kind: Any) -> _Form:  # noqa: ANN401 - any dataclass
    return _cached_form(kind)


@cache
def _cached_form(kind: Any) -> _Form:  # noqa: ANN401 - any dataclass
    fields = tuple(field.name for field in dataclasses.fields(kind))
    own = _hints(kind, fields)
    flat: dict[str, Any] = {field: hint for field, hint in own.items() if hasattr(hint, "_fields")}
    hints: dict[str, object] = {}
    for field, hint in own.items():
        hints |= _hints(hint, flat[field]._fields) if field in flat else {field: hint}
    defaults = {field.name: field.default for field in dataclasses.fields(kind) if field.kw_only}
    defaults |= {name: default for inner in flat.values() for name, default in inner._field_defaults.items()}
    return _Form(kind, fields, flat, hints, tuple(sorted(hints)), defaults)


def _hints(kind: Any, names: Sequence[str]) -> Mapping[str, object]:  # noqa: ANN401 - any dataclass or NamedTuple
    hints = get_type_hints(kind)
    return {name: getattr(hints[name], "__supertype__", hints[name]) for name in names}
