"""The goldens are what the official command line does: it runs their steps once more, and does the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.engine.record import by_key, derive_step, effects, plain, read_golden, record_scenario
from tests.support.official_cli import needs_cli

pytestmark = [pytest.mark.pulumi, needs_cli]
REPEATABLE = ("update", "replace", "replace-interrupted", "refresh")
"""In the others it varies what was done beside a resource that fails, or by the time of a kill."""


@pytest.mark.parametrize("scenario", REPEATABLE)
def test_the_command_line_still_does_what_was_recorded(scenario: str, tmp_path: Path) -> None:
    """Exit codes, counts, calls of the provider, and the resources in the state."""
    golden = read_golden(scenario)
    record_scenario(tmp_path, golden)
    for recorded in golden:
        new = derive_step(tmp_path / recorded["step"])
        assert _compared(new, states="after" in new) == _compared(recorded, states="after" in new)


def _compared(step: dict[str, Any], *, states: bool) -> dict[str, Any]:
    """Return what is the same each time; a step that only shows something may have been recorded without a state."""
    return {
        "step": step["step"],
        "exit": step["exit"],
        "changes": step.get("changes"),
        "effects": effects(step.get("calls", [])),
        "resources": {key: plain(resource) for key, resource in by_key(step.get("after")).items()} if states else {},
    }
