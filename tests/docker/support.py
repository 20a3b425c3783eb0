"""What the tests of containers share: Docker's own command, and a stack's containers."""

from __future__ import annotations

import json
import secrets
import subprocess
from typing import Any

import yaml

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


def configure(stage: Stage, **changes: object) -> None:
    """Change settings of a stage, which keeps the others; None takes one away."""
    path = stage.root / "stacks" / "Pulumi.dev.yaml"
    before = {key.partition(":")[2]: value for key, value in yaml.safe_load(path.read_text())["config"].items()}
    stage.configure(**{key: value for key, value in {**before, **changes}.items() if value is not None})


def own_pool() -> list[dict[str, object]]:
    """Make a pool that nobody else on this machine uses at the same time."""
    return [{"name": "own", "addresses": [f"127.{100 + secrets.randbelow(150)}.{secrets.randbelow(250)}.0/27"]}]
