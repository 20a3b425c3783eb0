"""What docs and docstrings call a module is one: whoever moves one moves its name in the texts as well."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import locallb
from tests.support.pages import CHECKOUT

ROOMS = Path(locallb.__file__).parent
_ROOM = "|".join(sorted(path.name for path in ROOMS.iterdir() if (path / "__init__.py").exists()))
_NAMED = re.compile(rf"`(?:locallb[./])?((?:{_ROOM})(?:[./]\w+)+)`")
OF_OTHERS = re.compile(
    r"relay\.(json|log)|kubernetes\.(io/.+|leaderelection)|envoy\.(log|stats_matcher|transport_sockets)\b.*"
)
"""What begins as a room does, and is a file or somebody else's."""
_FILE = re.compile(r"`([\w/.-]+\.py)`")
CODE = ("locallb", "tests", "benchmarks", "examples")
ENOUGH = 100
"""Fewer would mean that none is found."""
TEXTS = [*sorted((CHECKOUT / "docs").rglob("*.md")), *sorted(ROOMS.rglob("*.py"))]


def modules(text: str) -> Iterator[str]:
    """Return what a text names as a module, or as something in one."""
    yield from (name for name in _NAMED.findall(text) if not OF_OTHERS.fullmatch(name))


def exists(name: str) -> bool:
    """Return whether it is a file, a module, a room, or, behind a dot, a name that one of these has."""
    parts = re.split(r"[./]", name.removesuffix(".py"))
    if (ROOMS / name).is_file() or _text(parts) is not None:
        return True
    found = next((text for end in (1, 2) if (text := _text(parts[:-end]))), "")
    return name.endswith(f".{parts[-1]}") and bool(re.search(rf"\b{parts[-1]}\b", found))


def _text(parts: list[str]) -> str | None:
    place = ROOMS.joinpath(*parts)
    files = (path for path in (place.with_name(f"{place.name}.py"), place / "__init__.py") if path.exists())
    return next((path.read_text(encoding="utf-8") for path in files), None)


@pytest.mark.checkout
def test_every_file_of_code_that_a_page_names_is_there() -> None:
    """By the end of its path at least, and a cell of a table names none twice."""
    files = [*CHECKOUT.glob("*.py"), *(path for top in CODE for path in (CHECKOUT / top).rglob("*.py"))]
    found = {path.relative_to(CHECKOUT).parts for path in files}
    ends = {"/".join(parts[start:]) for parts in found for start in range(len(parts))}
    for page in sorted((CHECKOUT / "docs").rglob("*.md")):
        text = page.read_text(encoding="utf-8")
        assert [name for name in _FILE.findall(text) if name not in ends] == [], page
        cells = [_FILE.findall(cell) for line in text.splitlines() if line.startswith("|") for cell in line.split("|")]
        assert [names for names in cells if len(names) != len({*names})] == [], page


def test_every_module_that_a_text_names_is_there() -> None:
    """By its room and name, with dots or as a path."""
    named = [(path, name) for path in TEXTS for name in modules(path.read_text(encoding="utf-8"))]
    assert len(named) > ENOUGH
    assert [(str(path), name) for path, name in named if not exists(name)] == []


def test_every_room_has_a_row_in_the_table_of_rooms() -> None:
    """And no other has."""
    rows = re.findall(r"^\| `locallb/(\w+)/` \|", (CHECKOUT / "docs/architecture.md").read_text("utf-8"), re.MULTILINE)
    assert sorted(rows) == _ROOM.split("|")


@pytest.mark.parametrize(
    ("name", "present"),
    [
        ("planning.plan", True),
        ("planning/plan.py", True),
        ("planning.plan.make_plan", True),
        ("planning.plan.Plan.placements", True),
        ("planning.no_plan", False),
        ("planning/gone.py", False),
        ("planning/make_plan", False),
        ("provider/PulumiPlugin.yaml", True),
        ("planning.plan.no_such_name", False),
    ],
)
def test_a_name_of_something_else_is_found(name: str, present: bool) -> None:  # noqa: FBT001 - a table
    """Also one in a module that is there."""
    assert list(modules(f"see `{name}`")) == [name]
    assert exists(name) == present
