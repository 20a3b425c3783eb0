"""Private names of the Pulumi SDK stand in one module, which says of which release they are."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest

from locallb.engine import sdk_wire

CHECKOUT = Path(__file__).resolve().parents[2]
SOURCES = [path for room in ("locallb",) for path in (CHECKOUT / room).rglob("*.py")]
OUR_OWN = Path(sdk_wire.__file__)


def test_the_release_is_the_one_that_is_installed_and_required() -> None:
    """Another one may lack these names, or mean something else by them: read it again, then change both."""
    required = re.search(r"^pulumi==(\S+)$", (CHECKOUT / "requirements.txt").read_text(), re.MULTILINE)
    assert required
    assert version("pulumi") == required[1] == sdk_wire.RELEASE


def names_of_the_sdk(tree: ast.AST) -> Iterator[str]:
    """Return the names under which a module has the SDK, or parts of it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (each.asname or "pulumi" for each in node.names if each.name.split(".")[0] == "pulumi")
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "pulumi":
            yield from (each.asname or each.name for each in node.names)


def private_uses(text: str) -> list[str]:
    """Return the private names of the SDK that a module imports, or takes from what it imports."""
    tree = ast.parse(text)
    of_sdk = set(names_of_the_sdk(tree))
    claimed = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute) and _is_private(node.attr)]
    return sorted(
        [name for name in of_sdk if _is_private(name)]
        + [node.attr for node in claimed if (_first_name(node) in of_sdk) or node.attr == "_data"]
    )


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def _first_name(node: ast.expr) -> str:
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("from pulumi import _types", ["_types"]),
        ("import pulumi\npulumi.runtime.stack._wait()", ["_wait"]),
        ("from pulumi.runtime import rpc\nrpc._Path('x')", ["_Path"]),
        ("async def f(output): await output._data", ["_data"]),
        ("from pulumi.runtime import rpc\nrpc.UNKNOWN; self._x", []),
    ],
)
def test_private_names_are_recognised(text: str, expected: list[str]) -> None:
    """By import, by attribute, and what only outputs have."""
    assert private_uses(text) == expected


@pytest.mark.checkout
def test_no_other_module_uses_private_names() -> None:
    """Of the SDK, whatever it is for."""
    uses = {str(path.relative_to(CHECKOUT)): private_uses(path.read_text()) for path in SOURCES if path != OUR_OWN}
    assert not {path: names for path, names in uses.items() if names}
