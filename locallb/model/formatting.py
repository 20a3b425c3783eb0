"""Formatting of untrusted values for messages: short, printable, on one line, at a bounded cost.

Not here: the sentences themselves; each is written where its mistake is found.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import islice

LONGEST = 60
"""Characters of a text that are shown; of a longer one its beginning."""
_LARGEST_BITS = 128
"""Integers beyond an IPv6 address are described, not written out."""


def shown(value: object) -> str:
    """Write `value` (JSON-like, of any size, from any source) as a short printable text; texts in double quotes."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str():
            return f'"{clipped(value)}"'
        case int():
            return str(value) if value.bit_length() <= _LARGEST_BITS else f"a number of {value.bit_length()} bits"
        case _:
            return _described(value)


def clipped(text: str) -> str:
    """Return the printable beginning of `text`, without quotes."""
    if len(text) > LONGEST:
        return f"{printable(text[:LONGEST])}… ({len(text)} characters)"
    return printable(text)


def counted(number: int, noun: str, plural: str = "") -> str:
    """Write a number with its noun: `1 field`, `2 fields`."""
    return f"{number} {noun}" if number == 1 else f"{number} {plural or noun + 's'}"


def few(names: Collection[str], maximum: int = 5, between: str = ", ") -> str:
    """List names, those beyond `maximum` as a number: `a, b and 3 more`."""
    more = len(names) - maximum
    return between.join(islice(names, maximum)) + (f" and {more} more" if more > 0 else "")


def any_of(terms: Iterable[str]) -> str:
    """List words of which one is meant: `a, b or c`."""
    *maximum, last = terms
    return f"{', '.join(maximum)} or {last}" if maximum else last


def _described(value: object) -> str:
    match value:
        case float():
            return repr(value)
        case Mapping():
            return f"an object of {counted(len(value), 'field')}"
        case Sequence():
            return f"a list of {counted(len(value), 'item')}"
        case _:
            return f"a {type(value).__name__}"


def printable(text: str) -> str:
    """Replace what a terminal would act on: control characters, and whatever isn't printable."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
