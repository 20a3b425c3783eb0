"""Each helper of tests is there once: what two areas use is in tests/support, and a test module has tests only."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.checkout

CHECKOUT = Path(__file__).resolve().parents[2]
SMALLEST = 26
"""Nodes of the syntax of a helper that is worth being shared: below that, it is a line that any test may have."""


def modules(*roots: str) -> dict[str, ast.Module]:
    """Parse all modules below these directories, by name."""
    paths = [path for root in roots for path in (CHECKOUT / root).rglob("*.py")]
    return {
        ".".join(path.relative_to(CHECKOUT).with_suffix("").parts): ast.parse(path.read_text(encoding="utf-8"))
        for path in paths
    }


def imported(module: ast.Module) -> Iterator[str]:
    """Return what a module imports, as the name of a module or of something in one."""
    for node in ast.walk(module):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def area(name: str) -> str:
    """Return the directory of tests in which a module is; empty for what is beside them."""
    return name.split(".")[1] if name.startswith("tests.") and name.count(".") > 1 else ""


def normalised(function: ast.FunctionDef) -> str:
    """Write a function without its name, its docstring and its annotations, and with numbered parameters."""
    copy = ast.parse(ast.unparse(function)).body[0]
    assert isinstance(copy, ast.FunctionDef)
    copy.name, copy.returns = "f", None
    if ast.get_docstring(copy) is not None:
        copy.body = copy.body[1:]
    numbers: dict[str, str] = {}
    for parameter in (node for node in ast.walk(copy.args) if isinstance(node, ast.arg)):
        parameter.annotation = None
        parameter.arg = numbers.setdefault(parameter.arg, f"p{len(numbers)}")
    for node in ast.walk(copy):
        if isinstance(node, ast.Name):
            node.id = numbers.get(node.id, node.id)
    return ast.dump(copy)


def test_no_module_imports_a_test_module() -> None:
    """What another module needs is a helper, and helpers are easier to find where there is nothing else."""
    wrong = {
        name: taken
        for name, module in modules("tests", "benchmarks").items()
        for taken in imported(module)
        if any(part.startswith("test_") for part in taken.split(".")[:-1]) and taken.startswith("tests.")
    }
    assert wrong == {}


def test_areas_of_tests_share_helpers_by_tests_support() -> None:
    """An area's own helpers are nobody else's, so it may change them."""
    wrong = {
        name: taken
        for name, module in modules("tests").items()
        for taken in imported(module)
        if area(taken) not in {"", "support", area(name)} and (CHECKOUT / "tests" / area(taken)).is_dir()
    }
    assert wrong == {}


def test_no_helper_is_written_twice() -> None:
    """Whatever its parameters are called: the second one is imported instead."""
    found = defaultdict(set)
    for name, module in modules("tests").items():
        for node in module.body:
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("test_"):
                text = normalised(node)
                if text.count("(") >= SMALLEST:
                    found[text].add(f"{name}.{node.name}")
    assert [sorted(names) for names in found.values() if len(names) > 1] == []
