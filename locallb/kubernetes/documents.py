"""Parses a YAML or JSON file into documents of plain data, as Kubernetes' own tools understand them.

Built from libyaml's events rather than by PyYAML's constructor, which can't be configured as needed: keys are always
texts, dates stay texts, unknown tags are ignored, a repeated key is noticed, and files made to harm (aliases that
expand without end, depth without end) are refused at a bounded cost.

Plain scalars mean what they mean to Kubernetes' tools: null, booleans (yes, no, on and off too), integers (also octal
and hexadecimal) and decimal numbers; everything else is text. Merge keys (`<<`) work. Not here: the meaning of
documents (`object_parsing`).
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import yaml
from msgspec import Struct, field
from yaml import events

from locallb.model.texts import DEEPEST, MAX_ALIASED
from locallb.patterns import pattern

_CONSTANTS: dict[str, bool | None] = {
    **dict.fromkeys(["", "~", "null", "Null", "NULL"]),
    **dict.fromkeys(["true", "True", "TRUE", "yes", "Yes", "YES", "on", "On", "ON"], True),
    **dict.fromkeys(["false", "False", "FALSE", "no", "No", "NO", "off", "Off", "OFF"], False),
}
_INTEGER = pattern(r"([-+]?)(?:0b([01_]+)|0o?([0-7_]+)|0x([0-9a-fA-F_]+)|(0|[1-9][0-9_]*))")
_BASES = (2, 8, 16, 10)
_DECIMAL = pattern(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_LONGEST_NUMBER = 40
"""Longer ones stay text: no field has such a number, and Python refuses to read some."""
_NUMERIC = frozenset("0123456789+-.")
_PLAIN_TAGS = frozenset(f"tag:yaml.org,2002:{name}" for name in ("null", "bool", "int", "float"))
_NO_KEY = object()


class UnbuildableError(Exception):
    """The events are valid YAML, but no data for Kubernetes."""


class AliasAllowance(Struct):
    """Remaining size of one file's aliases, over all its documents."""

    maximum: int = MAX_ALIASED
    used: int = 0

    def take(self, size: int) -> None:
        """Use some of it. Raises UnbuildableError if that is too much."""
        self.used += size
        if self.used > self.maximum:
            raise UnbuildableError(f"its aliases stand for more than {self.maximum} characters")


class _Object(Struct):
    """An object that is being built."""

    anchor: str | None
    before: int
    values: dict[str, object] = field(default_factory=dict)
    merged: list[dict[str, object]] = field(default_factory=list)
    key: object = _NO_KEY
    merging: bool = False

    def done(self) -> object:
        """Return the object: its own keys first, then those merged in, in their order."""
        for source in self.merged:
            for key, value in source.items():
                self.values.setdefault(key, value)
        return self.values


class _List(Struct):
    """A list that is being built."""

    anchor: str | None
    before: int
    values: list[object] = field(default_factory=list)

    def done(self) -> object:
        return self.values


class _Anchored(Struct):
    """Value of an anchor, and its number of characters; no value yet while it is being built."""

    value: object = None
    size: int = 0


class Builder:
    """Builds one document from its events: `value`, and the repeated keys with their lines."""

    def __init__(self, allowance: AliasAllowance) -> None:
        self._allowance = allowance
        self._open: list[_Object | _List] = []
        self._anchors: dict[str, _Anchored] = {}
        self._size = 0
        self.value: object = None
        self.repeated: list[tuple[int, str]] = []

    def take(self, event: events.Event) -> None:
        """Take the next event. Raises UnbuildableError."""
        if take := _TAKERS.get(type(event)):
            take(self, event)

    def _mapping(self, event: events.MappingStartEvent) -> None:
        self._begin(_Object(event.anchor, self._size))

    def _sequence(self, event: events.SequenceStartEvent) -> None:
        self._begin(_List(event.anchor, self._size))

    def _scalar(self, event: events.ScalarEvent) -> None:
        size = 1 + len(event.value)
        self._size += size
        inside = self._open[-1] if self._open else None
        if isinstance(inside, _Object) and inside.key is _NO_KEY:
            self._name(event.anchor, event.value, size)
            self._key(inside, event.value, event)
            inside.merging = event.value == "<<" and event.implicit[0]
            return
        value = _meaning(event)
        self._name(event.anchor, value, size)
        self._put(value)

    def _key(self, inside: _Object, key: str, event: events.Event) -> None:
        if key in inside.values:
            self.repeated.append((line_of(event), key))
        inside.key = key

    def _begin(self, container: _Object | _List) -> None:
        self._size += 1
        if len(self._open) == DEEPEST:
            raise UnbuildableError(f"it is nested deeper than {DEEPEST}")
        inside = self._open[-1] if self._open else None
        if isinstance(inside, _Object) and inside.key is _NO_KEY:
            raise UnbuildableError("a key is an object or a list; keys are texts")
        if container.anchor:
            self._anchors[container.anchor] = _Anchored()
        self._open.append(container)

    def _end(self, _event: events.CollectionEndEvent) -> None:
        container = self._open.pop()
        value = container.done()
        self._name(container.anchor, value, self._size - container.before)
        self._put(value)

    def _name(self, anchor: str | None, value: object, size: int) -> None:
        if anchor:
            self._anchors[anchor] = _Anchored(value, size)

    def _alias(self, event: events.AliasEvent) -> None:
        named = self._anchors.get(event.anchor or "")
        if named is None:
            raise UnbuildableError("an alias names no anchor before it")
        if not named.size:
            raise UnbuildableError("an alias stands inside of what it names")
        self._allowance.take(named.size)
        self._size += named.size
        inside = self._open[-1]
        if isinstance(inside, _Object) and inside.key is _NO_KEY:
            if not isinstance(named.value, str):
                raise UnbuildableError("a key is an alias of something that is no text")
            self._key(inside, named.value, event)
            return
        self._put(named.value)

    def _put(self, value: object) -> None:
        inside = self._open[-1] if self._open else None
        match inside:
            case None:
                self.value = value
            case _List():
                inside.values.append(value)
            case _Object(merging=True):
                inside.merged.extend(_to_merge(value))
                inside.key, inside.merging = _NO_KEY, False
            case _:
                inside.values[str(inside.key)] = value
                inside.key = _NO_KEY


_TAKERS: Mapping[type[events.Event], Callable[[Builder, Any], None]] = {
    events.ScalarEvent: Builder._scalar,  # noqa: SLF001 - its own
    events.MappingStartEvent: Builder._mapping,  # noqa: SLF001 - likewise
    events.SequenceStartEvent: Builder._sequence,  # noqa: SLF001 - likewise
    events.MappingEndEvent: Builder._end,  # noqa: SLF001 - likewise
    events.SequenceEndEvent: Builder._end,  # noqa: SLF001 - likewise
    events.AliasEvent: Builder._alias,  # noqa: SLF001 - likewise
}
"""By the very type of an event: a file has dozens, and to compare each with one type after the other takes longer."""


def line_of(event: events.Event) -> int:
    """Return the line (from 1) where an event begins; 0 if unknown."""
    return event.start_mark.line + 1 if event.start_mark else 0


def _to_merge(value: object) -> list[dict[str, object]]:
    sources = value if isinstance(value, list) else [value]
    objects = [source for source in sources if isinstance(source, dict)]
    if len(objects) != len(sources):
        raise UnbuildableError("`<<` merges something that is no object")
    return objects


def _meaning(event: events.ScalarEvent) -> object:
    """Return the value of a scalar: a plain one by its form, a tagged one by its tag, a quoted one is text."""
    if event.implicit[0] or event.tag in _PLAIN_TAGS:
        return plain(event.value)
    return event.value


def plain(text: str) -> object:
    """Return the value of a plain scalar by its looks."""
    if text[:1] in _NUMERIC and text:
        return _number(text) if len(text) <= _LONGEST_NUMBER else text
    return _CONSTANTS.get(text, text)


def _number(text: str) -> object:
    if match := _INTEGER.fullmatch(text):
        sign, *digits = match.groups()
        for base, written in zip(_BASES, digits, strict=True):
            if written and written.strip("_"):
                return int(f"{sign}{written.replace('_', '')}", base)
    return float(text) if _DECIMAL.fullmatch(text) else text


_MARKS = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))
"""Byte order marks of some editors and shells, and the encodings they mean."""


class DocumentError(Exception):
    """A file has no valid documents: the line (from 1; 0 if unknown) and what is wrong there."""

    def __init__(self, line: int, what: str) -> None:
        super().__init__(what)
        self.line = line
        self.what = what


class Repeated(Struct, frozen=True):
    """A key that an object has twice: the last one counts, as for Kubernetes."""

    line: int
    key: str


class ReadDocument(Struct, frozen=True):
    """A document and its repeated keys."""

    value: object
    repeated: tuple[Repeated, ...] = ()


def read_documents(data: bytes, *, is_json: bool, allowance: AliasAllowance | None = None) -> tuple[ReadDocument, ...]:
    """Parse all documents of a file; `allowance` limits the size of its aliases. Raises DocumentError."""
    text = _decoded(data)
    return tuple(_json_documents(text) if is_json else _yaml_documents(text, allowance or AliasAllowance()))


def _decoded(data: bytes) -> str:
    codec = next((codec for mark, codec in _MARKS if data.startswith(mark)), "utf-8")
    try:
        return data.decode(codec)
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise DocumentError(line, "it isn't UTF-8") from None


def _yaml_documents(text: str, allowance: AliasAllowance) -> Iterator[ReadDocument]:
    builder, event = Builder(allowance), None
    try:
        for event in yaml.parse(text, Loader=yaml.CSafeLoader):
            builder.take(event)
            if type(event) is yaml.DocumentEndEvent:
                yield ReadDocument(builder.value, tuple(Repeated(*repeated) for repeated in builder.repeated))
                builder = Builder(allowance)
    except UnbuildableError as error:
        raise DocumentError(line_of(event) if event else 0, str(error)) from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise DocumentError(mark.line + 1 if mark else 0, error.problem or "invalid YAML") from None
    except yaml.YAMLError as error:
        raise DocumentError(0, str(error).partition("\n")[0]) from None


def _json_documents(text: str) -> Iterator[ReadDocument]:
    """Read JSON values one after another, as `kubectl get -o json` and streams of it have them."""
    position = _next(text, 0)
    while position < len(text):
        try:
            value, end = _DECODER.raw_decode(text, position)
        except json.JSONDecodeError as error:
            raise DocumentError(error.lineno, error.msg) from None
        except (ValueError, RecursionError) as error:
            what = _TOO_DEEP if isinstance(error, RecursionError) else "it has a number of thousands of digits"
            raise DocumentError(text.count("\n", 0, position) + 1, what) from None
        if _depth_exceeds(value):
            raise DocumentError(text.count("\n", 0, position) + 1, _TOO_DEEP)
        yield ReadDocument(value)
        position = _next(text, end)


_DECODER = json.JSONDecoder()
_TOO_DEEP = f"it is nested deeper than {DEEPEST}"


def _next(text: str, start: int) -> int:
    """Return the position of the next character that is no white space, or the end."""
    while start < len(text) and text[start] in " \t\r\n":
        start += 1
    return start


def _depth_exceeds(value: object) -> bool:
    level = [value]
    for _ in range(DEEPEST):
        inner = [part for value in level if isinstance(value, dict) for part in value.values()]
        level = inner + [part for value in level if isinstance(value, list) for part in value]
    return bool(level)
