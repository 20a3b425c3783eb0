"""What the tests of containers share: Docker's own command, and a stack's containers."""

from __future__ import annotations

import json
import subprocess
from typing import Any

from locallb.planning.containers import LABEL_PREFIX
from tests.e2e.support import Stage


def docker(*words: str) -> str:
    """Run Docker's own command."""
    done = subprocess.run(["docker", *words], check=True, capture_output=True, text=True, timeout=60)
    return done.stdout.strip()


def containers(stage: Stage) -> dict[str, dict[str, Any]]:
    """Give what Docker tells of the stage's containers, by the name of the Service."""
    listed = docker("ps", "-aq", "--filter", f"label={LABEL_PREFIX}root={stage.root}").split()
    seen = json.loads(docker("inspect", *listed)) if listed else []
    return {one["Config"]["Labels"][f"{LABEL_PREFIX}name"]: one for one in seen}


def identities(stage: Stage) -> dict[str, str]:
    """Give the containers' ids."""
    return {name: one["Id"] for name, one in containers(stage).items()}


def content(stage: Stage) -> None:
    """Check that there is nothing left to do."""
    done = stage.run("up", "--yes", "--expect-no-changes")
    assert done.code == 0, done.out + done.err
