"""Classes of data: what makes a field is of the library that makes its class."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from tests.support.stages import CHECKOUT

PATHS = [path for room in ("locallb", "tests", "benchmarks") for path in (CHECKOUT / room).rglob("*.py")]


def names_of(tree: ast.Module, module: str) -> Iterator[str]:
    """Return how `field` of a module is written in a file."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == module:
            yield from (alias.asname or alias.name for alias in node.names if alias.name == "field")
        elif isinstance(node, ast.Import):
            yield from (f"{alias.asname or alias.name}.field" for alias in node.names if alias.name == module)


def strange_fields(text: str) -> Iterator[str]:
    """Return the fields of classes that another library than theirs made."""
    if "field" not in text:
        return
    tree = ast.parse(text)
    written = {module: frozenset(names_of(tree, module)) for module in ("dataclasses", "msgspec")}
    for made in (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)):
        is_dataclass = any("dataclass" in ast.unparse(decorator) for decorator in made.decorator_list)
        foreign = written["msgspec" if is_dataclass else "dataclasses"]
        for field in (node for node in made.body if isinstance(node, ast.AnnAssign)):
            if isinstance(field.value, ast.Call) and ast.unparse(field.value.func) in foreign:
                yield f"{made.name}.{ast.unparse(field.target)}"


def test_a_field_is_of_the_library_that_makes_its_class() -> None:
    """The other's is no default but an object of its own, which neither complains of."""
    assert {str(path): found for path in PATHS if (found := list(strange_fields(path.read_text())))} == {}


def test_the_law_finds_both() -> None:
    """In a Struct the dataclasses' field, and the other way round."""
    head = "import dataclasses\nfrom dataclasses import dataclass\nfrom msgspec import Struct, field\n"
    struct = "class A(Struct):\n    one: int = dataclasses.field(default=1)\n    two: int = field(default=1)\n"
    data = "@dataclass\nclass B:\n    one: int = dataclasses.field(default=1)\n    two: int = field(default=1)\n"
    assert list(strange_fields(head + struct + data)) == ["A.one", "B.two"]


PURE = ("model", "config", "planning", "envoy", "gateway", "ingress", "dns", "certificates", "report")
"""Rooms whose results are compared to decide whether anything is to be done again."""


_BREAKING = re.compile(r"\b(compare|eq|__eq__|__ne__|__hash__)\b")
"""Other modules needn't be parsed."""


def incomplete_equalities(text: str) -> Iterator[str]:
    """Return the lines of classes whose instances are equal although they differ."""
    if not _BREAKING.search(text):
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.keyword) and node.arg in {"compare", "eq"} and ast.unparse(node.value) == "False":
            yield f"line {node.value.lineno}: {node.arg}=False"
        elif isinstance(node, ast.FunctionDef) and node.name in {"__eq__", "__ne__", "__hash__"}:
            yield f"line {node.lineno}: {node.name}"


def test_equality_is_total() -> None:
    """A field that equality ignores would be lost in silence wherever an equal value is used again."""
    paths = [path for room in PURE for path in (CHECKOUT / "locallb" / room).rglob("*.py")]
    assert {str(path): found for path in paths if (found := list(incomplete_equalities(path.read_text())))} == {}


def test_the_law_of_equality_finds_each_way_to_break_it() -> None:
    """By a field, by the class, by a method of its own."""
    field = "class A:\n    one: int = field(compare=False)\n"
    whole = "class B(Struct, eq=False):\n    one: int\n"
    method = "class C:\n    def __eq__(self, other):\n        return True\n"
    found = [line for text in (field, whole, method) for line in incomplete_equalities(text)]
    assert found == ["line 2: compare=False", "line 1: eq=False", "line 2: __eq__"]
