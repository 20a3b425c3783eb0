"""Names are made of the field's words: private ones, which only their authors read, stay out."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.checkout

CHECKOUT = Path(__file__).resolve().parents[2]
LIST = Path(__file__).with_name("private-words.txt")
PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")


def private() -> dict[str, str]:
    """Return the words that no name may have, and what to write instead."""
    rows = (line.partition(":") for line in LIST.read_text().splitlines() if line and not line.startswith("#"))
    return {word.strip(): instead.strip() for word, _, instead in rows}


def names(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Find the names that a module defines, with their lines."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.name, node.lineno
            case ast.arg():
                yield node.arg, node.lineno
            case ast.Name(ctx=ast.Store()):
                yield node.id, node.lineno
            case ast.Attribute(ctx=ast.Store()):
                yield node.attr, node.lineno
            case _:
                pass


def words(name: str) -> list[str]:
    """Split a name in snake or camel case into its words."""
    return [word.lower() for part in name.split("_") for word in PART.findall(part)]


@pytest.mark.parametrize(
    ("name", "expected"),
    [("_told_by", ["told", "by"]), ("ToldWriters", ["told", "writers"]), ("MOST_TTL", ["most", "ttl"])],
)
def test_names_are_split_into_words(name: str, expected: list[str]) -> None:
    """Of any case."""
    assert words(name) == expected


def test_no_name_has_a_private_word() -> None:
    """Neither a file nor anything that it defines; the list says what to write instead."""
    avoided = private()
    found = [
        f"{path.relative_to(CHECKOUT)}:{line} {name}: {avoided[word]}"
        for root in ("locallb",)
        for path in sorted((CHECKOUT / root).rglob("*.py"))
        for name, line in [(path.stem, 1), *names(ast.parse(path.read_text(encoding="utf-8")))]
        for word in words(name)
        if word in avoided
    ]
    assert found == []
