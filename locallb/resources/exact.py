"""The fast path of decoding: properties that are exactly as their record has them, which nearly all are.

Whatever is missing, superfluous, unknown or of another type is `Odd`: then `codec` reads all of it again, and says what
is wrong or what stands in its place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from functools import cache, partial
from types import MappingProxyType
from typing import Any, TypeAlias, TypeVar

from locallb.resources.forms import ABSENT, Form, form_of, is_record, shape
from locallb.resources.values import UNKNOWN, Values

T = TypeVar("T")
_Reader: TypeAlias = Callable[[Any], object]


_How: TypeAlias = tuple[Form, tuple[tuple[str, _Reader, object], ...]]
"""What a record is, how to read each property, and what stands for one that is missing."""


class Odd(Exception):  # noqa: N818 - no error: there is another way
    """These properties have to be read one by one."""


def exactly(kind: type[T], properties: Values) -> T:
    """Read a record. Raises Odd."""
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
