"""What becomes of failures that nobody caught: those that are sentences for users are told as they are."""

from __future__ import annotations

import re
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from pkgutil import resolve_name

import pytest

from locallb.cli import failures

ROOT = Path(__file__).resolve().parents[2]
NAME = re.compile(r"(?<![-/\w])(?:locallb|components)(?:\.[a-z_][a-z_0-9]*)+(?=[\s\"'`]|$)", re.MULTILINE)
"""A module, as code, scripts in tests and docstrings name one."""


@pytest.mark.parametrize(("module", "kind"), failures._REPORTED)
def test_known_errors_are_shown_as_their_sentence(module: str, kind: str) -> None:
    """The error that each room raises, and whatever is derived from it: modules may move, this list has to follow."""
    existing: type[Exception] = getattr(import_module(module), kind)
    derived = type("DerivedError", (existing,), {"__init__": Exception.__init__})
    assert failures.sentence(derived("x can't be had: do y")) == "x can't be had: do y"


def test_unknown_errors_are_shown_as_our_mistake_with_its_place() -> None:
    """Anything else is ours to repair."""
    assert failures.sentence(RuntimeError("x")).startswith("a mistake in local-lb (RuntimeError: x)")


@pytest.mark.parametrize(
    "error",
    [
        ImportError("x"),
        SyntaxError("expected ':'", ("ports.py", 77, 1, "def f():")),
        EOFError("marshal data too short"),
    ],
)
def test_code_that_cannot_be_loaded_is_damaged_or_lacks_memory(error: Exception) -> None:
    """Neither is a mistake of ours, and both have a remedy."""
    reported = failures.sentence(error)
    assert reported.startswith("a library can't be loaded (")
    assert "more memory, or install local-lb again" in reported


OF_PROJECTS = {"components.note", "components.hosts"}
"""What `init` writes into a project."""


@pytest.mark.checkout
def test_every_module_that_a_text_names_is_there() -> None:
    """Names in strings and docstrings are seen by no tool that follows imports: scripts of tests, lists, references."""
    files = [path for room in ("locallb", "tests", "benchmarks") for path in (ROOT / room).rglob("*.py")]
    named = {(path, name) for path in files for name in NAME.findall(path.read_text(encoding="utf-8"))}
    assert len(named) > 100
    assert sorted(f"{path}: {name}" for path, name in named if not _exists(name) and name not in OF_PROJECTS) == []


def _exists(name: str) -> bool:
    """Return whether a module or package has this name, or one has something of this name in it."""
    for length in range(name.count(".") + 1, 1, -1):
        path = Path(ROOT, *name.split(".")[:length])
        if path.with_suffix(".py").is_file() or any(path.glob("*.py")):
            break
    else:
        return False
    with suppress(AttributeError, ImportError):
        resolve_name(name)
        return True
    return False
