"""Homes that earlier versions wrote are taken over by the installed tool as well."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.support.recorded_homes import restored
from tests.support.takeover_laws import serving, touched

pytestmark = [pytest.mark.checkout, pytest.mark.slow, pytest.mark.envoy]


@pytest.mark.parametrize("home", ["1/per-service", "1/shared"])
def test_a_recorded_home_is_taken_over_by_the_tool(tool: Path, home: str) -> None:
    """Its `up` does nothing to what serves."""
    with restored(home) as stage:
        before = serving(stage)
        terms = [str(tool), "-C", str(stage.root), "up", "--yes", "--json"]
        done = subprocess.run(terms, check=True, capture_output=True, text=True, timeout=120)
        assert touched(json.loads(done.stdout)) == set()
        assert serving(stage) == before
