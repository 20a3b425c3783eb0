"""What texts point to exists: modules and errors in docstrings, and the table of the way of the data."""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import locallb

PACKAGE = Path(locallb.__file__).parent
DESIGN = Path(__file__).parents[2] / "docs" / "design"
_ELSEWHERE = re.compile(r"\(((?:see )?`[a-z_.]+`(?:(?:,| and|, and) `[a-z_.]+`)*)\)")
"""Where a docstring says which module has something: in parentheses."""
_NAME = re.compile(r"`([a-z_.]+)`")
_ERROR = re.compile(r"\b[A-Z][A-Za-z]*Error\b")


def _pointers(path: Path) -> Iterator[str]:
    text = " ".join((ast.get_docstring(ast.parse(path.read_text())) or "").split())
    for named in _ELSEWHERE.findall(text):
        yield from (name.removeprefix("locallb.") for name in _NAME.findall(named))
    for name in (name.removeprefix("locallb.") for name in _NAME.findall(text)):
        if "." in name and not name.endswith(".json") and (PACKAGE / name.split(".")[0]).is_dir():
            yield name


def _leads(path: Path, name: str) -> bool:
    """Return whether a name is a module beside this one, above it, or of the package, or a name that such a one has."""
    if re.search(rf"^(?:class |def |async def )?{name}\b", path.read_text(), re.MULTILINE):
        return True
    *parents, last = name.split(".")
    for base in (path.parent, *path.parent.parents):
        if not base.is_relative_to(PACKAGE):
            return False
        module = base.joinpath(*parents, last)
        if module.with_suffix(".py").exists() or (module / "__init__.py").exists():
            return True
        home = base.joinpath(*parents)
        sources = [home.with_suffix(".py"), home / "__init__.py"] if parents else []
        if any(each.exists() and re.search(rf"\b{last}\b", each.read_text()) for each in sources):
            return True
    return False


def test_docstrings_point_to_modules_that_exist() -> None:
    """Whoever reads that something is elsewhere finds it there."""
    stale = [
        f"{path.relative_to(PACKAGE)}: `{name}`"
        for path in sorted(PACKAGE.rglob("*.py"))
        for name in dict.fromkeys(_pointers(path))
        if not _leads(path, name)
    ]
    assert stale == []


def test_docstrings_name_errors_that_exist() -> None:
    """A class of the package, or one of others that its code names."""
    trees = {path.relative_to(PACKAGE): ast.parse(path.read_text()) for path in sorted(PACKAGE.rglob("*.py"))}
    nodes = [(path, node) for path, tree in trees.items() for node in ast.walk(tree)]
    existing = {name for _, node in nodes for name in _names(node)} | vars(builtins).keys()
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    named = {
        (str(path), error)
        for path, node in nodes
        if isinstance(node, documented)
        for error in _ERROR.findall(ast.get_docstring(node) or "")
    }
    assert sorted((path, error) for path, error in named if error not in existing) == []


def _names(node: ast.AST) -> tuple[str, ...]:
    match node:
        case ast.ClassDef(name) | ast.alias(name):
            return (name,)
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return (name,)
    return ()


@pytest.mark.checkout
def test_each_step_of_the_way_of_the_data_is_there() -> None:
    """Files and names of the table."""
    _, _, section = (DESIGN / "data-flow.md").read_text().partition("## A Service, from the API to its status")
    rows = [line for line in section.partition("\n## ")[0].splitlines() if line.startswith("| ")][1:]
    missing = []
    for row in rows:
        sources = [PACKAGE / name for name in re.findall(r"`([a-z_/]+\.py)`", row)]
        missing += [f"{row}: {source}" for source in sources if not source.exists()]
        texts = "".join(source.read_text() for source in sources if source.exists())
        names = re.findall(r"\.py`: `([A-Za-z_.]+)`", row)
        missing += [f"{row}: {name}" for name in names if not re.search(rf"\b{name.split('.')[-1]}\b", texts)]
        assert sources, row
    assert missing == []
