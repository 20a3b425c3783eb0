"""Reads the project's pages: their commands, words of code, links and headings."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
PAGES = (
    *(CHECKOUT / name for name in ("README.md", "CONTRIBUTING.md")),
    *sorted((CHECKOUT / "docs").rglob("*.md")),
    *sorted((CHECKOUT / "examples").rglob("*.md")),
)
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_CODE = re.compile(r"`([^`\n]+)`")
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_COMMENT = re.compile(r"\s+# .*")


@dataclass(frozen=True)
class Fence:
    """A block of code: its language, empty where none is named, and its text."""

    page: Path
    language: str
    text: str


def fences(page: Path) -> Iterator[Fence]:
    """Return the blocks of code of a page."""
    for match in _FENCE.finditer(page.read_text(encoding="utf-8")):
        yield Fence(page, match[1], match[2])


def commands(page: Path) -> Iterator[str]:
    """Return the commands that a page shows behind a prompt, without their comments."""
    for fence in fences(page):
        assert fence.language not in {"sh", "bash", "shell", "console"}, f"{page}: write commands behind `$ `"
        for line in fence.text.splitlines():
            if line.startswith("$ "):
                yield _COMMENT.sub("", line.removeprefix("$ "))


def words_of_code(page: Path) -> Iterator[str]:
    """Return what stands between backticks in the page's sentences and tables."""
    for match in _CODE.finditer(_FENCE.sub("", page.read_text(encoding="utf-8"))):
        yield match[1]


def links(page: Path) -> Iterator[str]:
    """Give where the page's links lead."""
    for match in _LINK.finditer(_CODE.sub("", _FENCE.sub("", page.read_text(encoding="utf-8")))):
        yield match[1]


def anchors(page: Path) -> set[str]:
    """Return the names of the page's headings, as GitHub makes them."""
    text = _FENCE.sub("", page.read_text(encoding="utf-8"))
    heads = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}
