"""What import-linter's contracts draw: no module stands outside of them, so that a new one must be given its place."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.checkout

CHECKOUT = Path(__file__).resolve().parents[2]
DRAWN_FROM = 6
"""Rooms of fewer modules need no drawing: that no circle is in them is checked everywhere."""


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
    """Return the modules and rooms of a room."""
    return {path.stem for path in room.glob("*.py")} - {"__init__"} | {path.parent.name for path in room.glob("*/*.py")}


ROOMS = sorted(
    path.parent.relative_to(CHECKOUT)
    for root in ("locallb", "components")
    for path in (CHECKOUT / root).rglob("__init__.py")
)


@pytest.mark.parametrize("room", [room for room in ROOMS if str(room) != "locallb"], ids=str)
def test_each_larger_room_is_drawn(room: Path) -> None:
    """A contract of layers, of which no module may be missing, has every room of six modules and more."""
    drawn = {
        container
        for contract in contracts()
        if contract.get("exhaustive")
        for container in contract.get("containers", ())
    }
    assert ".".join(room.parts) in drawn or len(modules(CHECKOUT / room)) < DRAWN_FROM


def test_every_contract_of_layers_inside_a_room_names_all_of_it() -> None:
    """Where one is drawn at all, a new module can't be left out."""
    assert [
        contract["name"] for contract in contracts() if "containers" in contract and not contract.get("exhaustive")
    ] == []


def test_each_room_stands_among_the_rooms() -> None:
    """The order of all rooms has everyone; the program's entry alone is above it."""
    (rooms,) = (contract for contract in contracts() if contract["name"].startswith("rooms:"))
    assert names(rooms) == {f"locallb.{name}" for name in modules(CHECKOUT / "locallb") - {"__main__"}} | {"components"}


def test_the_engine_is_forbidden_every_other_room_but_the_guarded_reader() -> None:
    """It could be published alone, with that one room, which imports nothing of ours."""
    (engine,) = (contract for contract in contracts() if contract["name"].startswith("the engine knows"))
    (rooms,) = (contract for contract in contracts() if contract["name"].startswith("rooms:"))
    assert set(engine["forbidden_modules"]) == names(rooms) - {"locallb.engine", "locallb.guarded"}


def test_no_room_has_a_circle() -> None:
    """Both packages are looked through, at every depth and with no exception."""
    (circles,) = (contract for contract in contracts() if contract["type"] == "acyclic_siblings")
    assert set(circles["ancestors"]) == {"locallb", "components"}
    assert set(circles) == {"name", "type", "ancestors"}
