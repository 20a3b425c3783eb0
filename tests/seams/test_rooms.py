"""import-linter's contracts cover every package: a new one must be given its layer."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.checkout

CHECKOUT = Path(__file__).resolve().parents[2]


def contracts() -> list[dict[str, Any]]:
    """Return the contracts as they are written."""
    settings: list[dict[str, Any]] = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["tool"]["importlinter"][
        "contracts"
    ]
    return settings


def names(contract: dict[str, Any]) -> set[str]:
    """Return what stands in a contract's layers."""
    return {name.strip(" ()") for layer in contract["layers"] for name in re.split("[|:]", layer)}


def modules(room: Path) -> set[str]:
    return {path.stem for path in room.glob("*.py")} - {"__init__"} | {path.parent.name for path in room.glob("*/*.py")}


def test_each_package_has_a_layer() -> None:
    """The contract of layers names all of them; the program's entry alone is above it."""
    (rooms,) = (contract for contract in contracts() if contract["name"].startswith("layers:"))
    assert names(rooms) == {f"locallb.{name}" for name in modules(CHECKOUT / "locallb") - {"__main__"}}


def test_the_engine_may_import_no_other_package_but_those_of_files_and_expressions() -> None:
    """It could be published alone, with those two modules."""
    (engine,) = (contract for contract in contracts() if contract["name"].startswith("the engine is"))
    (rooms,) = (contract for contract in contracts() if contract["name"].startswith("layers:"))
    assert set(engine["forbidden_modules"]) == names(rooms) - {
        "locallb.engine",
        "locallb.safe_files",
        "locallb.patterns",
    }


def test_no_package_has_an_import_cycle() -> None:
    """Both root packages are checked, at every depth and without exceptions."""
    (circles,) = (contract for contract in contracts() if contract["type"] == "acyclic_siblings")
    assert set(circles["ancestors"]) == {"locallb"}
    assert set(circles) == {"name", "type", "ancestors"}
