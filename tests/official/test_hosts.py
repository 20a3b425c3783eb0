"""The CLI runs programs by the hosts that were built; `tests/e2e/test_official_packages.py` has one in TypeScript."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.official_cli import cli_environment, needs_cli

pytestmark = [pytest.mark.pulumi, needs_cli]
PROJECT = "name: hosted\nbackend: {url: 'file://./.state'}\n"
PYTHON = "import pulumi\npulumi.export('said', pulumi.Config().get('word') or 'nothing')\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return the directory of a project without a program."""
    (tmp_path / ".state").mkdir()
    return tmp_path


def run(project: Path, *terms: str) -> str:
    """Run the CLI in a project, and expect it to succeed."""
    command = ["pulumi", *terms, "--non-interactive", "--color", "never"]
    environment = {**os.environ, **cli_environment()}
    done = subprocess.run(
        command, cwd=project, env=environment, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def said(project: Path) -> str:
    """Update the stack, and return what its program says."""
    run(project, "up", "--yes", "--skip-preview", "--stack", "dev")
    return str(json.loads(run(project, "stack", "output", "--json", "--stack", "dev"))["said"])


def follows_configuration(project: Path) -> None:
    """Check that a program runs, without configuration and with some."""
    run(project, "stack", "init", "dev")
    assert said(project) == "nothing"
    run(project, "config", "set", "word", "hello", "--stack", "dev")
    assert said(project) == "hello"


def test_program_in_python_runs(project: Path) -> None:
    """In the virtual environment that the project names."""
    (project / "__main__.py").write_text(PYTHON)
    runtime = f"runtime: {{name: python, options: {{virtualenv: {sys.prefix}}}}}\n"
    (project / "Pulumi.yaml").write_text(PROJECT + runtime)
    follows_configuration(project)


def test_program_in_yaml_runs(project: Path) -> None:
    """The project is the program."""
    program = "config: {word: {type: string, default: nothing}}\noutputs: {said: '${word}'}\n"
    (project / "Pulumi.yaml").write_text(f"{PROJECT}runtime: yaml\n{program}")
    follows_configuration(project)
