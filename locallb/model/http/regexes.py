r"""Validation of regular expressions: only those of RE2 that stay small once compiled.

RE2 takes time in proportion to a text's length whatever the expression, and memory in proportion to the expression's
compiled size, which repetition makes large: so that is bounded here, by an estimate that is never too low. Refused as
well is what RE2 doesn't have (references back, looking around) and what nobody needs of a path or header: Unicode
classes, \Q, \C and anything but printable ASCII.
"""

from __future__ import annotations

import re
from functools import lru_cache

from msgspec import Struct, field

from locallb.model.formatting import shown
from locallb.model.http.checks import MAX_TEXT

MAX_SIZE = 5000
"""Instructions of a compiled expression, by our estimate."""
MAX_REPEAT = 1000
MAX_DEPTH = 50
_REMEMBERED = 20_000
"""Expressions: as many as the routes of an address may have, which are asked for with each plan."""
_CHARACTER_SIZE = 2
_CLASS_SIZE = 6
_GROUP_SIZE = 4
_REPEAT_SIZE = 3
"""Instructions of a piece at most, as Envoy counts them (it reads Latin-1)."""
_END = re.compile(r"\)")
_REPEAT = re.compile(r"\{(\d{1,9})(,(\d{0,9}))?\}")
_ESCAPE = re.compile(r"\\(?:[dDwWsSbBAztnrfva]|x[0-9A-Fa-f]{2}|[^\w\s])")
_GROUP = re.compile(r"\((?:\?(?:P<([A-Za-z_]\w{0,31})>|[imsU]*(?:-[imsU]+)?:)|(?!\?))")
_FLAGS = re.compile(r"\(\?[ims]+\)")
_POSIX = r"\[:\^?(?:alnum|alpha|digit|lower|punct|space|upper|xdigit):\]"
_SINGLE = r"(\\x[0-9A-Fa-f]{2}|\\[^\w\s]|[^\\\][-])"
_MEMBER = re.compile(rf"\\[dDwWsStnrfva]|{_POSIX}|-|{_SINGLE}(?:-{_SINGLE})?")


def checked(pattern: str) -> str:
    """Return an expression that RE2 compiles within our limits. Raises ValueError with what is wrong with it."""
    _ = _measured(pattern)
    return pattern


def groups(pattern: str) -> int:
    """Return how many groups an expression has that take something. Raises as `checked` does."""
    return _measured(pattern)[1]


def size_of(pattern: str) -> int:
    """Return how many instructions an expression becomes at most. Raises as `checked` does."""
    return _measured(pattern)[0]


@lru_cache(maxsize=_REMEMBERED)
def _measured(pattern: str) -> tuple[int, int]:
    if not pattern or len(pattern) > MAX_TEXT or not pattern.isascii() or not pattern.isprintable():
        raise ValueError(f"a regular expression has 1 to {MAX_TEXT} printable ASCII characters")
    parser = _Parser(pattern)
    size = parser.alternatives(0)
    if parser.at < len(pattern):
        raise parser.fault("an unmatched parenthesis")
    if size > MAX_SIZE:
        raise ValueError(f"the regular expression {shown(pattern)} becomes too large: repeat less")
    return size, parser.taking


class _Parser(Struct):
    """Reads an expression once, from left to right; each method returns what its piece takes at most."""

    text: str
    at: int = 0
    names: set[str] = field(default_factory=set)
    taking: int = 0
    """Groups so far whose text can be referred to."""

    def alternatives(self, depth: int) -> int:
        if depth > MAX_DEPTH:
            raise self.fault(f"more than {MAX_DEPTH} groups in one another")
        size = _CLASS_SIZE
        while self.at < len(self.text) and self.text[self.at] != ")":
            if self.text[self.at] == "|":
                self.at, size = self.at + 1, size + _CHARACTER_SIZE
            else:
                size += self._piece(depth)
        return size

    def _piece(self, depth: int) -> int:
        if flags := _FLAGS.match(self.text, self.at):
            self.at = flags.end()
            return 0
        return self._repeated(self._atom(depth))

    def _atom(self, depth: int) -> int:
        match self.text[self.at]:
            case "(":
                return self._group(depth)
            case "[":
                return self._set()
            case "\\":
                self._take(_ESCAPE, "an escape that isn't known here")
                return _CLASS_SIZE
            case "*" | "+" | "?":
                raise self.fault("nothing to repeat")
            case "{" if _REPEAT.match(self.text, self.at):
                raise self.fault("nothing to repeat")
            case character:
                self.at += 1
                return _CLASS_SIZE if character == "." else _CHARACTER_SIZE

    def _group(self, depth: int) -> int:
        opening = self._take(_GROUP, "a group that isn't known here")
        name = opening[1]
        self.taking += opening[0] == "(" or name is not None
        if name in self.names:
            raise self.fault("two groups of one name")
        self.names |= {name} if name else set()
        size = self.alternatives(depth + 1) + _GROUP_SIZE
        self._take(_END, "an unmatched parenthesis")
        return size

    def _set(self) -> int:
        self.at += 2 if self.text.startswith("[^", self.at) else 1
        size = _CLASS_SIZE
        while not self.text.startswith("]", self.at) or size == _CLASS_SIZE:
            low, high = self._take(_MEMBER, "a set that isn't known here").groups()
            if high and _code(low) > _code(high):
                raise self.fault("a range that ends before it begins")
            size += _CHARACTER_SIZE
        self.at += 1
        return size

    def _repeated(self, size: int) -> int:
        times = 1
        if self.text[self.at : self.at + 1] in {"*", "+", "?"}:
            self.at += 1
        elif repeat := _REPEAT.match(self.text, self.at):
            self.at = repeat.end()
            low, high = int(repeat[1]), int(repeat[3] or repeat[1])
            times = max(low, high, 1) + 1
            if not low <= high <= MAX_REPEAT:
                raise self.fault(f"a repetition that isn't within 0 and {MAX_REPEAT}")
        else:
            return size
        self.at += self.text.startswith("?", self.at)
        if self.text[self.at : self.at + 1] in {"*", "+", "?"} or _REPEAT.match(self.text, self.at):
            raise self.fault("a repetition of a repetition")
        return (size + _REPEAT_SIZE) * times

    def _take(self, word: re.Pattern[str], complaint: str) -> re.Match[str]:
        taken = word.match(self.text, self.at)
        if not taken:
            raise self.fault(complaint)
        self.at = taken.end()
        return taken

    def fault(self, what: str) -> ValueError:
        """Explain what is wrong, and where."""
        return ValueError(f"the regular expression {shown(self.text)} has {what} at character {self.at + 1}")


def _code(member: str) -> int:
    """Return which character a member of a set is."""
    return ord(member[-1]) if not member.startswith("\\x") else int(member.replace("\\", "0"), 0)
