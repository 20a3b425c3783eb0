"""Each finding of the threat model names the tests that show it, and they are there."""

from __future__ import annotations

import ast
import re

import pytest

from tests.support.pages import CHECKOUT

MODEL = CHECKOUT / "docs/design/threats.md"
ROWS = re.findall(r"^\| (T\d+) \|.*\| ([^|]+) \|$", MODEL.read_text(encoding="utf-8"), re.MULTILINE)


def test_findings_are_numbered() -> None:
    assert [number for number, _ in ROWS] == [f"T{place}" for place in range(1, len(ROWS) + 1)]
    assert len(ROWS) > 25


@pytest.mark.parametrize(("finding", "shown"), ROWS, ids=[number for number, _ in ROWS])
def test_a_finding_is_shown_by_tests(finding: str, shown: str) -> None:
    names = re.findall(r"`([\w/.]+)::(\w+)`", shown)
    assert names, finding
    for path, name in names:
        tree = ast.parse((CHECKOUT / "tests" / path).read_text(encoding="utf-8"))
        assert name in {each.name for each in tree.body if isinstance(each, ast.FunctionDef)}, (finding, name)
