"""Makes the texts of an untrusted object writable: as UTF-8, as JSON, as a name, and on a terminal.

JSON can write half of a surrogate pair, which no encoding of a file or a request takes, and control characters in the
names of things. Every source passes its objects through `cleaned` before anything else reads them: an object with such
a text keeps its name, as far as that can be written, and the fault, with which its parser refuses it.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from locallb.model.formatting import clipped

FAULT = "local-lb.dev/fault"
"""The field with the fault of a cleaned object: half a sentence."""
DEEPEST = 200
"""Objects and lists within each other that are accepted."""
MAX_ALIASED = 1 << 20
"""Limit of characters that the aliases of a YAML text expand to, also if one names another."""
_SUSPICIOUS = re.compile(rb"\\[ubf]|\x7f|\xc2[\x80-\x9f]")
"""JSON escapes of control characters; escaped backslashes in texts may look alike."""
_HALVES = re.compile("[\ud800-\udfff]")
_UNWRITABLE = re.compile("[\x00\ud800-\udfff]")
_CONTROLS = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")
_Key = TypeVar("_Key", bound=object)
_JSON = msgspec.json.Encoder()


def cleaned(document: Mapping[_Key, object]) -> dict[_Key, object]:
    """Return an object unchanged or, if a text of it can't be written, with the text escaped and `FAULT`."""
    clean: dict[Any, object] = document if isinstance(document, dict) else dict(document)
    if _is_plain(clean):
        return clean
    faults: list[str] = []
    escaped = _object(clean, "", 0, faults)
    if faults:
        escaped[FAULT] = faults[0]
    return escaped if faults else clean


def fault_of(document: Mapping[object, object]) -> str:
    """Return why an object was cleaned; empty for nearly all."""
    fault = document.get(FAULT)
    return fault if isinstance(fault, str) else ""


def _is_plain(document: dict[Any, object]) -> bool:
    """Return whether all texts can be written and none is deep within, as far as that is seen at a glance."""
    try:
        text = _JSON.encode(document)
        return text.count(b"{") + text.count(b"[") <= DEEPEST and not _SUSPICIOUS.search(text)
    except (UnicodeEncodeError, RecursionError, OverflowError, TypeError, ValueError):
        return False


def _value(value: object, path: str, depth: int, faults: list[str]) -> object:
    if depth > DEEPEST:
        faults.append(f"{clipped(path)} is nested deeper than {DEEPEST}; make it flatter")
        return None
    match value:
        case str():
            return _text(value, path, _forbidden(path), faults)
        case dict():
            return _object(value, path, depth, faults)
        case list() | tuple():
            return [_value(inner, f"{path}[{number}]", depth + 1, faults) for number, inner in enumerate(value)]
        case _:
            return value


def _object(value: Mapping[Any, object], path: str, depth: int, faults: list[str]) -> dict[Any, object]:
    made: dict[Any, object] = {}
    for key, inner in value.items():
        name = _text(key, f"a key of {path or 'the object'}", _CONTROLS, faults) if isinstance(key, str) else key
        made[name] = _value(inner, f"{path}.{key}" if path else str(key), depth + 1, faults)
    return made


def _forbidden(path: str) -> re.Pattern[str]:
    """Return what a text may not have: labels and annotations may be any text, other metadata names something."""
    if path.startswith(("metadata.labels", "metadata.annotations")):
        return _HALVES
    return _CONTROLS if path.startswith("metadata.") else _UNWRITABLE


def _text(text: str, path: str, forbidden: re.Pattern[str], faults: list[str]) -> str:
    found = forbidden.search(text)
    if found is None:
        return text
    character = found[0]
    name = unicodedata.name(character, "half a character" if character >= "\ud800" else "a control character")
    faults.append(f"{clipped(path)} has U+{ord(character):04X}, {name}; take it out")
    return forbidden.sub(lambda match: match[0].encode("unicode_escape").decode(), text)
