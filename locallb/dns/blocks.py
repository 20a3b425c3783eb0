"""A marked block of ours in another program's text, such as /etc/hosts or a Corefile: found, inserted, removed.

Pure. A block begins and ends with a comment that names it; the text around it is kept byte for byte. Not here: the
content of a block, and the writing of files.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

ENDS = "# local-lb: end of "
BEGINS = "# local-lb: names of "
_JOINED = " (the line before had no end)"
_LINE = re.compile(r"[^\n]*\n|[^\n]+")


def block(name: str, lines: Sequence[str]) -> str:
    """Return a block with these lines; empty where there are none."""
    return "".join(f"{line}\n" for line in (f"{BEGINS}{name}", *lines, f"{ENDS}{name}")) if lines else ""


def block_in(text: str, name: str) -> str:
    """Return the block of this name in a text, as `block` writes it; empty where there is none."""
    _, lines, _ = _parted(_LINE.findall(text), name)
    return "".join(lines).replace(f"{_JOINED}\n", "\n")


def with_block(text: str, name: str, wanted: str) -> str:
    """Return the text with this block in place of the one of this name; without one where it is empty."""
    before, existing, after = _parted(_LINE.findall(text), name)
    joined = bool(existing) and existing[0].endswith(f"{_JOINED}\n")
    if not wanted:
        above = "".join(before)
        return (above.removesuffix("\n") if joined and not after else above) + "".join(after)
    if not existing and before and not before[-1].endswith("\n"):
        before, joined = [*before[:-1], f"{before[-1]}\n"], True
    head, _, rest = wanted.partition("\n")
    return "".join([*before, f"{head}{_JOINED if joined else ''}\n{rest}", *after])


def _parted(lines: list[str], name: str) -> tuple[list[str], list[str], list[str]]:
    """Part the lines before a block, of it, and after it. One that lost its beginning or its end is none."""
    heads = {f"{BEGINS}{name}\n", f"{BEGINS}{name}{_JOINED}\n"}
    first, whole = -1, (len(lines), len(lines))
    for number, line in enumerate(lines):
        if line in heads:
            first = number
        elif line == f"{ENDS}{name}\n" and first >= 0:
            whole, first = (first, number + 1), -1
    return lines[: whole[0]], lines[slice(*whole)], lines[whole[1] :]
