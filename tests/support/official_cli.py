"""The official Pulumi CLI on a stage's stack: how it is called, and that neither engine has anything to do."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

import locallb
from tests.support.pulumi_build import built, place
from tests.support.stages import Done, Stage


def find_cli() -> Path | None:
    if path := built():
        return path
    ambient = shutil.which("pulumi")
    return Path(ambient) if ambient else None


needs_cli = pytest.mark.skipif(find_cli() is None, reason="Pulumi's CLI isn't built; `make test-pulumi` builds it")


def cli_environment() -> dict[str, str]:
    """Return what the CLI is told whatever it runs: no question, no look for updates, nobody's login and plugins."""
    found = find_cli()
    paths = [str(found.parent)] if found else []
    return {
        "PATH": os.pathsep.join([*paths, os.environ["PATH"]]),
        "PULUMI_HOME": str(place() / "home"),
        "PULUMI_CONFIG_PASSPHRASE": "",
        "PULUMI_SKIP_UPDATE_CHECK": "true",
    }


def find_docker_plugin() -> Path | None:
    """Find the official docker plugin, which is in no registry: on PATH, or installed in the version of the SDK."""
    if ambient := shutil.which("pulumi-resource-docker"):
        return Path(ambient)
    home = Path(os.environ.get("PULUMI_HOME") or Path.home() / ".pulumi")
    installed = home / "plugins" / f"resource-docker-v{version('pulumi_docker')}" / "pulumi-resource-docker"
    return installed if installed.exists() else None


def make_runnable(root: Path) -> None:
    """Give the project in `root` what the CLI needs: the provider's directory and this Python."""
    (root / "locallb").symlink_to(Path(locallb.__file__).parent)
    (root / ".venv").symlink_to(sys.prefix)


def install_plugin(home: Path) -> Path:
    """Install our provider into a home of the CLI, as users do; return the executable."""
    command = [sys.executable, "-m", "locallb", "plugin", "install", "--json"]
    told = {**os.environ, "PULUMI_HOME": str(home)}
    done = subprocess.run(command, env=told, check=True, stdout=subprocess.PIPE, text=True)
    return Path(json.loads(done.stdout)["path"])


def environment() -> dict[str, str]:
    """Return what the CLI is told, and where the docker plugin is, if somewhere."""
    told = cli_environment()
    plugin = find_docker_plugin()
    return {**told, "PATH": f"{plugin.parent}{os.pathsep}{told['PATH']}"} if plugin else told


def command_line(root: Path, *terms: str) -> list[str]:
    """Return the CLI's command line for the stack of the project in `root`."""
    return ["pulumi", "--cwd", str(root), *terms, "--stack", "dev", "--non-interactive", "--color", "never"]


def start(stage: Stage, *terms: str) -> subprocess.Popen[str]:
    """Start the CLI on the stack, in a session of its own."""
    return subprocess.Popen(
        command_line(stage.root, *terms),
        env={**os.environ, **environment()},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def end_session(process: subprocess.Popen[Any]) -> None:
    """Kill a process that leads a session and, after it, all that it has started, plugins included."""
    process.kill()
    process.wait()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            session = stat.read_text().rpartition(")")[2].split()[3]
            if int(session) == process.pid:
                os.kill(int(stat.parent.name), signal.SIGKILL)


def pulumi(stage: Stage, *terms: str) -> Done:
    with start(stage, *terms) as process:
        out, err = process.communicate(timeout=600)  # on a machine that has other work
    return Done(process.returncode, out, err)


def update(stage: Stage, *terms: str) -> Done:
    """Run a command of the CLI that changes something, and expect it to succeed."""
    done = pulumi(stage, *terms, "--yes", "--skip-preview")
    assert done.code == 0, done.out + done.err
    return done


def bring(stage: Stage, by: str) -> Done:
    """Run `up` of one of the engines."""
    return update(stage, "up") if by == "pulumi" else stage.up()


def make_stack(stage: Stage) -> None:
    """Make the stack, which the CLI doesn't do by itself."""
    done = pulumi(stage, "stack", "init")
    assert done.code == 0, done.out + done.err


def content(stage: Stage) -> None:
    """Check that neither engine has anything to do."""
    done = stage.run("preview", "--expect-no-changes")
    assert done.code == 0, done.out + done.err
    done = pulumi(stage, "preview", "--expect-no-changes")
    assert done.code == 0, done.out + done.err
