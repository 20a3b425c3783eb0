"""A project that the official command line can run, with the tests' program and provider; for recorder and take-over.

The program reads its specification from the file that LIVE_SPEC names. The provider runs as a plugin in a process of
its own: its world is a folder (LIVE_WORLD), what it shall do stands in a file (LIVE_CONTROL), and it notes its calls
(LIVE_CALLS), as the recordings have them.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, MutableMapping
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from pulumi.provider.experimental import server

from tests.support.balancers import declare
from tests.support.engine import Inputs, World, WorldProvider
from tests.support.official_cli import cli_environment

ROOT = Path(__file__).parents[2]
SALT = "v1:aZco2d2rP/M=:v1:ER6jWNm/9UK0C3QL:9Wa/HyAsepEJ8k8QZCPW9fkxs98GHA=="  # for the empty passphrase
PROJECT = """name: local-lb
runtime: {{name: python, options: {{virtualenv: {prefix}}}}}
stackConfigDir: stacks
backend: {{url: 'file://./.state'}}
plugins: {{providers: [{{name: locallb, path: ./provider}}]}}
"""
MAIN = "import sys\nsys.path.insert(0, {root!r})\nfrom tests.engine.live import {what}\n{what}()\n"


class Names(MutableMapping[str, Any]):
    """A world of which only the names matter, kept as files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def __getitem__(self, key: str) -> Any:  # noqa: ANN401 a thing
        if not (self.folder / quote(key, safe="")).exists():
            raise KeyError(key)
        return {}

    def __setitem__(self, key: str, value: object) -> None:
        (self.folder / quote(key, safe="")).touch()

    def __delitem__(self, key: str) -> None:
        if key not in self:
            raise KeyError(key)
        (self.folder / quote(key, safe="")).unlink()

    def __iter__(self) -> Iterator[str]:
        return (unquote(path.name) for path in self.folder.iterdir())

    def __len__(self) -> int:
        return len(list(self.folder.iterdir()))


class LiveProvider(WorldProvider):
    """The provider as a plugin: it notes its calls in a file."""

    _numbers = count(1)

    def _call(self, method: str, request: Any) -> str:  # noqa: ANN401 any request
        self.planned(method, request)
        return super()._call(method, request)

    def planned(self, method: str, request: Any) -> None:  # noqa: ANN401 any request
        about = {"type": request.type, "name": request.name}
        line = {"call": next(self._numbers), "method": method.title(), "request": about}
        if path := os.environ.get("LIVE_CALLS"):
            with Path(path).open("a") as stream:
                stream.write(f"{json.dumps(line)}\n")


def program() -> None:
    declare(json.loads(Path(os.environ["LIVE_SPEC"]).read_text()))


def plugin() -> None:
    control = Path(os.environ["LIVE_CONTROL"])
    world = World(control=json.loads(control.read_text()) if control.exists() else {})
    world.things = Names(Path(os.environ["LIVE_WORLD"]))  # type: ignore[assignment]  # it behaves like a dict
    world.preview_support = "REC_NO_PREVIEW_SUPPORT" not in os.environ
    server.main(sys.argv[1:], "0.1.0", LiveProvider(world))


def make_live_project(folder: Path) -> Path:
    """Make a project with the stack `dev`."""
    for name in (".state", "stacks", "provider"):
        (folder / name).mkdir(parents=True)
    (folder / "Pulumi.yaml").write_text(PROJECT.format(prefix=sys.prefix))
    (folder / "stacks" / "Pulumi.dev.yaml").write_text(f"encryptionsalt: {SALT}\n")
    (folder / "__main__.py").write_text(MAIN.format(root=str(ROOT), what="program"))
    (folder / "provider" / "PulumiPlugin.yaml").write_text(
        f"runtime:\n  name: python\n  options:\n    virtualenv: {sys.prefix}\n"
    )
    (folder / "provider" / "__main__.py").write_text(MAIN.format(root=str(ROOT), what="plugin"))
    return folder


def start_cli(
    folder: Path, command: list[str], spec: Inputs, control: Inputs, more: dict[str, str] | None = None
) -> "subprocess.Popen[str]":
    """Start the official command line in a project, in a process group of its own."""
    (folder / "spec.json").write_text(json.dumps(spec))
    (folder / "control.json").write_text(json.dumps(control))
    environment = {
        **os.environ,
        **(more or {}),
        **cli_environment(),
        "PULUMI_DEBUG_COMMANDS": "true",
        "LIVE_SPEC": str(folder / "spec.json"),
        "LIVE_CONTROL": str(folder / "control.json"),
        "LIVE_WORLD": str(folder / "world"),
        "LIVE_CALLS": str(folder / "provider.jsonl"),
    }
    whole = ["pulumi", *command, "--stack", "dev", "--non-interactive", "--color", "never"]
    return subprocess.Popen(
        whole,
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def run_cli(folder: Path, command: list[str], spec: Inputs, control: Inputs | None = None) -> tuple[int, str, str]:
    """Run the official command line to its end; gives exit code, stdout and stderr."""
    process = start_cli(folder, command, spec, control or {})
    stdout, stderr = process.communicate(timeout=180)
    return process.returncode, stdout, stderr
