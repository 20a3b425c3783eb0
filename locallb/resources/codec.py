"""Converts between JSON-like properties and records (frozen Structs), by the records' own annotations.

A NamedTuple in a record is no object of its own: its fields are properties next to the others. Of these, one with a
default may be missing, and isn't written while it has that; likewise a field that is given by name only. A property
that isn't known yet (in a preview) is the string UNKNOWN in its field, whatever the field's type; only the preview's
code encounters it.

Nearly all properties are exactly as their record has them, and take the fast path, `exactly`. Not here: the generated
records (`properties`), and the meaning of values.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from enum import StrEnum
from functools import cache, partial
from inspect import Parameter, signature
from types import MappingProxyType
from typing import Any, TypeAlias, TypeGuard, TypeVar, get_args, get_origin, get_type_hints

from msgspec import Struct

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


ABSENT = object()
"""In place of a property that isn't there."""


@cache
def shape(hint: Any) -> tuple[object, object]:  # noqa: ANN401 - any annotation
    """Return what an annotation is of, and of what it holds."""
    arguments = get_args(hint)
    return get_origin(hint) or hint, arguments[0 if get_origin(hint) is tuple else -1] if arguments else None


def is_record(hint: object) -> TypeGuard[type[Struct]]:
    """Return whether an annotation is a Struct, so that its fields are properties."""
    return isinstance(hint, type) and issubclass(hint, Struct)


class Form(Struct, frozen=True):
    """What a record is as properties."""

    kind: Any
    fields: tuple[str, ...]
    flat: Mapping[str, Any]
    """NamedTuples by field: their fields are properties themselves."""
    hints: Mapping[str, object]
    """By property."""
    names: tuple[str, ...]
    """Properties, sorted as the state has them."""
    defaults: Mapping[str, object]

    def make(self, given: dict[str, object]) -> Any:  # noqa: ANN401 - of `kind`
        """Make it of its properties, which are used up."""
        for field, kind in self.flat.items():
            given[field] = kind._make([given.pop(name) for name in kind._fields])
        return self.kind(**given)

    def properties(self, record: Any) -> Mapping[str, object]:  # noqa: ANN401 - of `kind`
        given = {field: getattr(record, field) for field in self.fields}
        for field, kind in self.flat.items():
            given |= zip(kind._fields, given.pop(field), strict=True)
        return given


def _form_of(kind: Any) -> Form:  # noqa: ANN401 - any record
    own = _hints(kind, kind.__struct_fields__)
    flat: dict[str, Any] = {field: hint for field, hint in own.items() if hasattr(hint, "_fields")}
    hints: dict[str, object] = {}
    for field, hint in own.items():
        hints |= _hints(hint, flat[field]._fields) if field in flat else {field: hint}
    by_name = (
        parameter for parameter in signature(kind).parameters.values() if parameter.kind is Parameter.KEYWORD_ONLY
    )
    defaults = {each.name: each.default for each in by_name if each.default is not Parameter.empty}
    defaults |= {name: default for inner in flat.values() for name, default in inner._field_defaults.items()}
    return Form(kind, kind.__struct_fields__, flat, hints, tuple(sorted(hints)), defaults)


def _hints(kind: Any, names: Sequence[str]) -> Mapping[str, object]:  # noqa: ANN401 - any class with fields
    hints = get_type_hints(kind)
    return {name: getattr(hints[name], "__supertype__", hints[name]) for name in names}


form_of: Callable[[Any], Form] = cache(_form_of)
"""Returns what a record is as properties."""


T = TypeVar("T")
_Reader: TypeAlias = Callable[[Any], object]


_How: TypeAlias = tuple[Form, tuple[tuple[str, _Reader, object], ...]]
"""What a record is, how to read each property, and what stands for one that is missing."""


class Odd(Exception):  # noqa: N818 - no error: there is another way
    """These properties have to be read one by one."""


def exactly(kind: type[T], properties: Values) -> T:
    """Read a record from properties that have exactly its form. Raises Odd.

    Whatever is missing, superfluous, unknown or of another type is Odd: `decode` then reads all of it again, and
    reports the failure or fills in a value.
    """
    form, readers = _readers(kind)
    fields: dict[str, object] = {}
    missing = 0
    for name, read, default in readers:
        given = properties.get(name, ABSENT)
        if given is ABSENT:
            given, missing = default, missing + 1
        fields[name] = read(given)
    if len(properties) + missing != len(fields):
        raise Odd
    made: T = form.make(fields)
    return made


def _read_how(kind: Any) -> _How:  # noqa: ANN401 - any record
    form = form_of(kind)
    return form, tuple((name, _reader(hint), form.defaults.get(name, ABSENT)) for name, hint in form.hints.items())


_readers: Callable[[Any], _How] = cache(_read_how)


@cache
def _reader(hint: Any) -> _Reader:  # noqa: ANN401 - any annotation
    if hint in _SIMPLE:
        return _SIMPLE[hint]
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return partial(_choice, {str(member): member for member in hint})
    origin, inner = shape(hint)
    if origin is tuple:
        return partial(_list, _reader(inner))
    if origin is Mapping:
        return partial(_mapping, _reader(inner))
    return partial(_object, hint) if is_record(hint) else _odd


def _text(given: object) -> object:
    if type(given) is not str or given == UNKNOWN:
        raise Odd
    return given


def _flag(given: object) -> object:
    if type(given) is not bool:
        raise Odd
    return given


def _number(given: object) -> object:
    if type(given) is not int:
        raise Odd
    return given


def _choice(members: Mapping[str, StrEnum], given: object) -> object:
    if isinstance(given, str) and given in members:
        return members[given]
    raise Odd


def _list(read: _Reader, given: object) -> object:
    if type(given) is list or type(given) is tuple:
        return tuple(map(read, given))
    raise Odd


def _mapping(read: _Reader, given: object) -> object:
    if type(given) is dict or type(given) is MappingProxyType:
        return {key: read(item) for key, item in given.items()}
    raise Odd


def _object(kind: type, given: object) -> object:
    if type(given) is dict:
        return exactly(kind, given)
    raise Odd


def _odd(given: object) -> object:
    del given
    raise Odd


_SIMPLE: Mapping[object, _Reader] = {str: _text, bool: _flag, int: _number}


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
        return _decoded_choice(hint, given)
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


def _decoded_choice(hint: type[StrEnum], given: str) -> StrEnum:
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
