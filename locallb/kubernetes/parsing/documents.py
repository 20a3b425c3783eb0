"""The documents of a YAML or JSON file as plain data, as Kubernetes' own tools understand them.

Built from libyaml's events rather than by PyYAML's constructor, which can't be configured as needed: keys are always
texts, dates stay texts, unknown tags are ignored, a key that stands twice is noticed, and files made to harm
(aliases that unfold without end, depth without end) are refused at a bounded cost. Not here: what documents mean.
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator

import yaml
from msgspec import Struct

from locallb.kubernetes.parsing.yaml_builder import Allowance, Builder, UnbuildableError, line_of
from locallb.model.texts import DEEPEST

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


def read_documents(data: bytes, *, is_json: bool, allowance: Allowance | None = None) -> tuple[ReadDocument, ...]:
    """Parse all documents of a file; `allowance` limits the size of its aliases. Raises DocumentError."""
    text = _decoded(data)
    return tuple(_json_documents(text) if is_json else _yaml_documents(text, allowance or Allowance()))


def _decoded(data: bytes) -> str:
    codec = next((codec for mark, codec in _MARKS if data.startswith(mark)), "utf-8")
    try:
        return data.decode(codec)
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise DocumentError(line, "it isn't UTF-8") from None


def _yaml_documents(text: str, allowance: Allowance) -> Iterator[ReadDocument]:
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
