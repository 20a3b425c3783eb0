"""Reads the project's pages: their commands, words of code, links and headings."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
PAGES = (
    *(CHECKOUT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")),
    *sorted((CHECKOUT / "docs").rglob("*.md")),
    *sorted((CHECKOUT / "examples").rglob("*.md")),
)
_FENCE = re.compile(r"^( *)(`{3,}|~{3,})([^\n`]*)\n(.*?)^ *\2$", re.DOTALL | re.MULTILINE)
_CODE = re.compile(r"`([^`\n]+)`")
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_COMMENT = re.compile(r"\s+# .*")
SHELL = "sh"
"""The language of blocks that a reader copies into a shell."""
_ASSIGNED = re.compile(r"\w+=\$\(.*\)$")
_TAKES_INPUT = re.compile(
    r"\bsudo\b|\b(locallb|pulumi)\b(?!.* --yes\b).* (up|destroy|refresh|watch)\b|make watch| -f$| logs -f "
)
"""A command that reads what is typed after it."""
_PROGRAMS = re.compile(
    r"(sudo |\w+=\S* )*(\S*/)?(locallb|make|pulumi|kubectl|kind|k3d|helm|docker|podman|pip3?|pipx|uvx?|python3?|curl"
    r"|dig|git|apt|apt-get|brew|systemctl|journalctl|loginctl|sudo|cp|mv|rm|mkdir|cd|cat|echo|export|sed|source) "
)
"""How a line begins that a user types."""


@dataclass(frozen=True)
class Fence:
    """A block of code: its language, empty where none is named, and its text."""

    page: Path
    language: str
    text: str


def fences(page: Path) -> Iterator[Fence]:
    """Return the blocks of code of a page."""
    for match in _FENCE.finditer(page.read_text(encoding="utf-8")):
        yield Fence(page, match[3].strip(), textwrap.dedent(match[4]))


def commands(page: Path) -> Iterator[str]:
    """Return the commands that a page shows, in blocks for a shell."""
    for fence in fences(page):
        if fence.language == SHELL:
            yield from lines(fence)


def misplaced(page: Path) -> Iterator[str]:
    """Return the lines of the page's other blocks that look like commands, and of those for a shell that aren't one.

    A reader copies whole blocks: a prompt, output or (to zsh) a comment fails, and a line behind a command that asks or
    goes on until it is stopped becomes its answer.
    """
    for fence in fences(page):
        typed = lines(fence)
        if fence.language in {"", "text"}:
            yield from (line for line in typed if _PROGRAMS.match(line.removeprefix("$ ")))
        elif fence.language == SHELL:
            yield from (line for line in typed if _COMMENT.search(line) or not _is_command(line))
            yield from filter(_TAKES_INPUT.search, typed[:-1])


def _is_command(line: str) -> bool:
    return bool(_PROGRAMS.match(f"{line} ") or _ASSIGNED.match(line))


def lines(fence: Fence) -> list[str]:
    """Return the lines of a block as a shell joins them."""
    return re.sub(r"\s*\\\n\s*", " ", fence.text).splitlines()


def words_of_code(page: Path) -> Iterator[str]:
    """Return what stands between backticks in the page's sentences and tables."""
    for match in _CODE.finditer(_FENCE.sub("", page.read_text(encoding="utf-8"))):
        yield match[1]


def links(page: Path) -> Iterator[str]:
    for match in _LINK.finditer(_CODE.sub("", _FENCE.sub("", page.read_text(encoding="utf-8")))):
        yield match[1]


def anchors(page: Path) -> set[str]:
    """Return the names of the page's headings, as GitHub makes them."""
    text = _FENCE.sub("", page.read_text(encoding="utf-8"))
    heads = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


SESSIONS = ("docs/traffic.md",)
"""These have a Service `shop/web`, a Gateway `shop/front` and the Nodes `worker-1` and `worker-2`."""
