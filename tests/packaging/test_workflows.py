"""The workflows of the repository: each may only read it, and runs what there is."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.stages import CHECKOUT

pytestmark = pytest.mark.checkout
WORKFLOWS = sorted((CHECKOUT / ".github/workflows").glob("*.yaml"))


def runs(workflow: Mapping[str, Any]) -> Iterator[str]:
    for job in workflow["jobs"].values():
        yield from (step["run"] for step in job["steps"] if "run" in step)


@pytest.mark.parametrize("path", WORKFLOWS, ids=[path.stem for path in WORKFLOWS])
def test_a_workflow_reads_the_repository_and_runs_targets_and_modules_that_exist(path: Path) -> None:
    workflow = yaml.safe_load(path.read_text())
    assert workflow["permissions"] == {"contents": "read"}
    assert all("timeout-minutes" in job for job in workflow["jobs"].values())
    targets = set(re.findall(r"^([\w.-]+(?:/dev)?):", (CHECKOUT / "Makefile").read_text(), re.MULTILINE))
    for command in runs(workflow):
        made = re.search(r"\bmake ([\w./-]+)", command)
        module = re.search(r"python -m ([\w.]+)", command)
        assert made or module or "apt-get" in command, command
        assert not made or made[1] in targets
        assert not module or find_spec(module[1])
