r"""Validation of regular expressions: RE2 decides, which is what Envoy uses, within limits of ours.

RE2 takes time in proportion to a text's length whatever the expression, and memory in proportion to the expression's
compiled size, which repetition makes large: so that is bounded. Refused as well are Unicode classes, of which a hundred
take seconds to compile if capitals don't matter; \Q, which would swallow what is added to an expression; and anything
but printable ASCII.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

from locallb.model.formatting import shown
from locallb.model.http.checks import MAX_TEXT

if TYPE_CHECKING:
    import re2

MAX_SIZE = 5000
"""Instructions of a compiled expression."""
_MAX_MEMORY = 1 << 19
"""Bytes that compiling may take: MAX_SIZE instructions fit. With Envoy's 8 MiB a refusal would cost more."""
_REMEMBERED = 20_000
"""Expressions: as many as the routes of an address may have, which are asked for with each plan."""
_TOO_LARGE = "becomes too large: repeat less"
_ESCAPED = re.compile(r"\\(.)")
_ESCAPES = {
    **dict.fromkeys("123456789", "a reference back to a group"),
    **dict.fromkeys("pP", "a Unicode class"),
    "Q": r"a quotation by \Q",
}
"""Escapes that aren't served, and what each is."""
_SET = r"\[\^?\]?(?:\[:\^?[a-z]+:\]|\\.|[^\]\\])*\]"
_PIECE = re.compile(rf"\\.|{_SET}|\{{(\d{{1,9}})(?:,(\d{{0,9}}))?\}}|(\(\?<?[=!])|\((?:\?[\w<-]*[:>])?|.")


def checked(pattern: str) -> str:
    """Return an expression that RE2 compiles within our limits. Raises ValueError with its fault."""
    _ = _measured(pattern)
    return pattern


def groups(pattern: str) -> int:
    """Return how many groups an expression has that take something. Raises as `checked` does."""
    return _measured(pattern)[1]


def size_of(pattern: str) -> int:
    """Return how many instructions an expression becomes. Raises as `checked` does."""
    return _measured(pattern)[0]


@lru_cache(maxsize=_REMEMBERED)
def _measured(pattern: str) -> tuple[int, int]:
    if not pattern or len(pattern) > MAX_TEXT or not pattern.isascii() or not pattern.isprintable():
        raise ValueError(f"a regular expression has 1 to {MAX_TEXT} printable ASCII characters")
    for letter in _ESCAPED.findall(pattern):
        if letter in _ESCAPES:
            raise _fault(pattern, f"has {_ESCAPES[letter]}, which isn't served")
    if _pieces(pattern) > MAX_SIZE:
        raise _fault(pattern, _TOO_LARGE)
    compiled = _compiled(pattern)
    if compiled.programsize > MAX_SIZE:
        raise _fault(pattern, _TOO_LARGE)
    return compiled.programsize, compiled.groups


def _pieces(pattern: str) -> int:
    """Count the pieces of an expression as often as they are repeated: cheap, where RE2 takes long to find that out."""
    sizes, last = [0], 0
    for piece in _PIECE.finditer(pattern):
        low, high, around = piece.groups()
        if around:
            raise _fault(pattern, "looks around, which RE2 can't")
        if low:
            sizes[-1] += last * (max(int(low), int(high or 0), 1) - 1)
        elif piece[0].startswith("("):
            sizes.append(0)
        elif piece[0] == ")" and len(sizes) > 1:
            last = sizes.pop()
            sizes[-1] += last
        else:
            last = 1
            sizes[-1] += 1
    return sum(sizes)


def _compiled(pattern: str) -> re2._Regexp:
    """Compile an expression as Envoy does: bytes are characters."""
    try:
        import re2  # noqa: PLC0415 - few stacks have expressions
    except ImportError as error:
        raise _fault(
            pattern, f"can't be checked: install google-re2, with a Python for which it exists ({error})"
        ) from None
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    options.log_errors = False  # on stderr
    options.max_mem = _MAX_MEMORY
    try:
        return re2.compile(pattern.encode(), options)
    except re2.error as error:
        why = error.args[0].decode()
    raise _fault(pattern, _TOO_LARGE if why.startswith("pattern too large") else f"is refused by RE2: {why}")


def _fault(pattern: str, why: str) -> ValueError:
    return ValueError(f"the regular expression {shown(pattern)} {why}")
