"""The action for GitHub: its steps run in a shell, as a runner runs them."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.backends import backends
from tests.support.manifests import node, port, service
from tests.support.stages import CHECKOUT, Done, Stage, stage
from tests.support.watching import eventually, is_alive

pytestmark = [pytest.mark.checkout, pytest.mark.envoy]
HTTP = 8080
ACTION = yaml.safe_load((CHECKOUT / "action.yml").read_text())


@pytest.fixture
def runner(wheel: Path) -> Iterator[tuple[Stage, Path, dict[str, str]]]:
    """Return a project, a runner's directory for files, and what expressions mean; no index is asked."""
    with stage() as made:
        temporary = made.root / "runner"
        borrowed = temporary / f"local-lb/lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"
        borrowed.mkdir(parents=True)
        (borrowed / "borrowed.pth").write_text(f"{Path(yaml.__file__).parents[1]}\n")
        yield made, temporary, {"github.action_path": str(wheel)}
        if (pid := temporary / "local-lb.pid").exists():
            process = int(pid.read_text())
            if is_alive(process):
                os.kill(process, signal.SIGTERM)
                eventually(lambda: not is_alive(process))


def run_action(
    play: Stage, temporary: Path, meanings: Mapping[str, str], steps: Sequence[dict[str, Any]] = (), **inputs: str
) -> Done:
    """Run the steps of the action as a runner does, up to the first that fails."""
    given = {f"inputs.{name}": str(one["default"]) for name, one in ACTION["inputs"].items()}
    given |= {f"inputs.{name}": value for name, value in inputs.items()} | dict(meanings)
    runner = {"RUNNER_TEMP": str(temporary), "GITHUB_PATH": str(temporary / "path")}
    pip = {"PIP_NO_INDEX": "1", "PIP_NO_DEPS": "1"}
    for step in steps or ACTION["runs"]["steps"]:
        assert "${{" not in step["run"]
        assert step.get("if", "inputs.wait != ''") == "inputs.wait != ''"
        if "if" in step and not given["inputs.wait"]:
            continue
        own = {
            name: re.sub(r"\$\{\{ (\S+) \}\}", lambda found: given[found[1]], value)
            for name, value in step["env"].items()
        }
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
            env={**os.environ, **runner, **pip, **own},
            cwd=play.root,
            check=False,
            capture_output=True,
            text=True,
            timeout=120,
        )
        if done.returncode:
            break
    return Done(done.returncode, done.stdout, done.stderr)


@pytest.mark.slow
def test_the_action_serves_and_waits(runner: tuple[Stage, Path, dict[str, str]]) -> None:
    """Its three steps, and what follows in a job."""
    play, temporary, meanings = runner
    with backends() as make:
        play.write("s.yaml", node(), service("web", port(HTTP, make("web").port)))
        done = run_action(play, temporary, meanings, wait="web n/web", timeout="60s")
        assert (done.code, done.err) == (0, ""), done.out + (temporary / "local-lb.log").read_text()
        assert play.status()["n/web"]["state"] == "serving"
    assert (temporary / "path").read_text() == f"{temporary}/local-lb/bin\n"


@pytest.mark.slow
def test_the_action_fails_with_the_log_where_a_service_does_not_come(
    runner: tuple[Stage, Path, dict[str, str]],
) -> None:
    """Inputs are words, whatever is in them."""
    play, temporary, meanings = runner
    play.write("s.yaml", node(), service("web", port(HTTP, 30000)))
    assert run_action(play, temporary, meanings).code == 0
    eventually(lambda: "stack dev" in (temporary / "local-lb.log").read_text())
    inputs = {"wait": "$(touch${IFS}x) none", "timeout": "1s"}
    done = run_action(play, temporary, meanings, ACTION["runs"]["steps"][-1:], **inputs)
    assert done.code == 1
    assert "there is no load balancer 'none'" in done.err
    assert "stack dev" in done.out
    assert not (play.root / "x").exists()
