"""Who is measured by `benchmarks.watch`: `locallb watch` in each of its modes, the Pulumi CLI, or whatever runs there.

A target acts by itself once the cluster changes; the Pulumi CLI is told to, after each change. Not here: what is asked
of it.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.requests import until
from locallb.envoy import binary
from locallb.envoy.admin import EnvoyAdmin, EnvoyAdminError
from locallb.runtimes.planners import PROXY_LABEL
from tests.support.control_plane import ControlPlane
from tests.support.stages import CHECKOUT, Stage, envoys, stage
from tests.support.watching import Watch, watching

MODES: Mapping[str, Mapping[str, object]] = {
    "process": {},
    "spares": {"proxies": {"mode": "per-service", "spares": 2}},
    "shared": {"proxies": "shared"},
    "docker": {"runtime": "docker"},
    "pulumi up": {},
}
"""Settings of the stack by what is measured."""


@dataclass
class Target:
    """Something that acts by itself, of which nothing else is known."""

    name: str

    def act(self) -> None:
        """Begin to act on a change, where it doesn't by itself."""

    def acted(self) -> None:
        """Wait until that is over."""


@dataclass
class OurLoop(Target):
    """A `locallb watch` of this run."""

    play: Stage
    watch: Watch

    @property
    def pid(self) -> int:
        return self.watch.process.pid

    def kill(self, address: str, port: int) -> None:
        """Kill the proxy that serves there, and return at once."""
        directory = self.directory(address, port)
        listed = (
            subprocess.run(
                ["docker", "ps", "-q", "--filter", f"label={PROXY_LABEL}={directory.name}"],
                check=True,
                capture_output=True,
                text=True,
            ).stdout.split()
            if self.name == "docker"
            else []
        )
        for container in listed:
            subprocess.Popen(["docker", "kill", container], stdout=subprocess.DEVNULL)
        for pid in () if listed else envoys(directory):
            os.kill(pid, signal.SIGKILL)

    def directory(self, address: str, port: int) -> Path:
        """Return the directory of the proxy that serves there."""
        for directory in (self.play.state_home / "proxies").iterdir():
            try:
                if f"{address}:{port}/TCP" in EnvoyAdmin(directory).listeners():
                    return directory
            except EnvoyAdminError:
                continue
        raise SystemExit(f"no proxy of {self.name} serves {address}:{port}")


@dataclass
class PulumiCommand(Target):
    """`pulumi up`, as somebody types it after each change."""

    play: Stage
    _process: subprocess.Popen[bytes] | None = field(default=None, init=False)

    def act(self) -> None:
        self._process = self.start("up", "--yes", "--skip-preview")

    def acted(self) -> None:
        if self._process and self._process.wait():
            raise SystemExit("`pulumi up` failed")

    def start(self, *terms: str) -> subprocess.Popen[bytes]:
        """Start any command of the CLI."""
        environment = {**os.environ, "PULUMI_CONFIG_PASSPHRASE": "", "PULUMI_SKIP_UPDATE_CHECK": "true"}
        command = ["pulumi", *terms, "--stack", "dev", "--non-interactive", "--color", "never"]
        return subprocess.Popen(command, cwd=self.play.root, env=environment, stdout=subprocess.DEVNULL)


@contextmanager
def target(mode: str, plane: ControlPlane, **settings: object) -> Iterator[Target]:
    """Have a stack of its own follow the cluster; it is destroyed at the end."""
    with stage() as play:
        pools = [{"name": "own", "addresses": [f"127.{100 + secrets.randbelow(150)}.{secrets.randbelow(250)}.0/26"]}]
        image = {"image": docker_image()} if mode == "docker" else {}
        play.configure(**{"sources": [plane.source], "pools": pools, **MODES[mode], **image, **settings})
        if mode == "pulumi up":
            (play.root / "locallb").symlink_to(CHECKOUT / "locallb")
            (play.root / ".venv").symlink_to(sys.prefix)
            command = PulumiCommand(mode, play)
            command.start("stack", "init").wait()
            try:
                yield command
            finally:
                command.acted()
                command.start("destroy", "--yes").wait()
            return
        with watching(play, "--plain") as watch:
            until(lambda: "converged" in watch.reported() or watch.process.poll() is not None, "the start")
            yield OurLoop(mode, play, watch)


def absent(mode: str) -> str:
    """Return why a mode can't be measured here; empty if it can."""
    if mode == "pulumi up" and not shutil.which("pulumi"):
        return "no `pulumi` on PATH"
    if mode == "docker" and not _has_image():
        return f"no Docker daemon with the image {docker_image()}; `locallb image` makes it"
    return ""


def docker_image() -> str:
    """Name the image that `locallb image` makes."""
    return f"local-lb/envoy:{binary.installed().version}"


def _has_image() -> bool:
    docker = shutil.which("docker")
    if docker is None:
        return False
    command = [docker, "image", "inspect", docker_image()]
    return subprocess.run(command, check=False, capture_output=True).returncode == 0
