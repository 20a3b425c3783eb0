"""The image of local-lb for tests, and a directory that is one inside and outside of its containers."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from tests.support.backends import ask
from tests.support.cluster_build import CHECKOUT
from tests.support.containers import docker, own_pool
from tests.support.kubelet_images import PYTHON, root_file_system
from tests.support.servers import free_port

_SOCKET = Path("/var/run/docker.sock")
_USER = 23456


@pytest.fixture(scope="module")
def tool(image: str, wheel: Path) -> Iterator[str]:
    """Build the image of local-lb on a base of Debian's packages, as no registry is asked."""
    del image
    name = f"local-lb/test-{secrets.token_hex(4)}"
    base = f"{name}-base"
    packed = root_file_system(PYTHON)
    docker("import", str(packed), base)
    dist = wheel.parent.parent / "dist"
    dist.symlink_to(wheel.parent)
    terms = [str(CHECKOUT / "deploy/image/build"), sys.executable, base, name]
    subprocess.run(terms, cwd=dist.parent, check=True, capture_output=True, timeout=600)
    yield name
    docker("rmi", "-f", name, base)


class Served:
    """A directory that is one inside and outside, with a user's own project which serves the manifests in it.

    `config` says it otherwise; `more` is what else its containers are run with.
    """

    def __init__(self, image: str, config: Mapping[str, object] | None = None, more: Sequence[str] = ()) -> None:
        self.more = tuple(more)
        self.root = Path(tempfile.mkdtemp(prefix="llb-", dir="/tmp"))
        (self.root / "manifests").mkdir()
        stacks = self.root / "local-lb/stacks"
        stacks.mkdir(parents=True)
        usual = {"sources": [{"manifests": str(self.root / "manifests"), "name": "local"}], "runtime": "docker"}
        whole = {**usual, "image": image, "pools": own_pool(), **(config or {})}
        text = yaml.safe_dump({"config": {f"local-lb:{key}": value for key, value in whole.items()}})
        (stacks / "Pulumi.dev.yaml").write_text(text)
        self.group = _SOCKET.stat().st_gid
        for path in (self.root, *self.root.rglob("*")):
            os.chown(path, _USER, self.group)
            path.chmod(0o700 if path.is_dir() else 0o600)

    def variables(self, number: int) -> Mapping[str, str]:
        """Return where everything is, and on which port its health is told."""
        places = {"HOME": "", "XDG_STATE_HOME": "", "XDG_DATA_HOME": "", "LOCALLB_LEDGER": "/ledger"}
        own = {name: f"{self.root}{below}" for name, below in places.items()}
        return {**own, "LOCALLB_HEALTH": f"http://127.0.0.1:{number}/healthz"}

    def terms(self, number: int = 9) -> list[str]:
        """Return how it is run: as deploy/compose.yaml has it, with the directory and the port of this test."""
        variables = self.variables(number)
        retained = yaml.safe_load((CHECKOUT / "deploy/compose.yaml").read_text())["services"]["local-lb"]
        assert (retained["network_mode"], retained["pid"], retained["read_only"], retained["cap_drop"]) == (
            "host",
            "host",
            True,
            ["ALL"],
        )
        return [
            *(
                "--network",
                retained["network_mode"],
                "--pid",
                retained["pid"],
                "--read-only",
                "--tmpfs",
                *retained["tmpfs"],
            ),
            *("--cap-drop", *retained["cap_drop"], "--security-opt", retained["security_opt"][0].partition(":")[0]),
            *("--user", f"{_USER}:{self.group}", "--volume", f"{_SOCKET}:{_SOCKET}"),
            *("--volume", f"{self.root}:{self.root}", "--health-interval", "1s"),
            *(word for name, value in variables.items() for word in ("--env", f"{name}={value}")),
            *self.more,
        ]

    @contextmanager
    def composed(self, tool: str, compose: Sequence[str]) -> Iterator[None]:
        """Have compose run what deploy/compose.yaml says, in the directory and on the port of this test."""
        number = free_port()
        text = (CHECKOUT / "deploy/compose.yaml").read_text().replace("/var/lib/locallb", str(self.root))
        document = yaml.safe_load(text)
        own = {"image": tool, "environment": self.variables(number)}
        own["command"] = ["watch", "--plain", "--metrics", f"127.0.0.1:{number}"]
        document["services"]["local-lb"] |= own
        (self.root / "compose.yaml").write_text(yaml.safe_dump(document))
        environment = {**os.environ, "LOCALLB_USER": f"{_USER}:{self.group}"}
        terms = [*compose, "--file", str(self.root / "compose.yaml"), "--project-name", self.root.name]
        try:
            subprocess.run([*terms, "up", "--detach"], env=environment, check=True, capture_output=True, timeout=120)
            yield
        finally:
            subprocess.run([*terms, "down"], env=environment, check=True, capture_output=True, timeout=120)

    def start(self, tool: str, *more: str) -> str:
        number = free_port()
        watch = ("watch", "--plain", "--metrics", f"127.0.0.1:{number}")
        return docker("run", "--detach", *self.terms(number), *more, tool, *watch)

    @contextmanager
    def watching(self, tool: str) -> Iterator[str]:
        """Have a container watch; at the end SIGTERM, which it must follow by itself."""
        made = self.start(tool)
        try:
            yield made
            docker("kill", "--signal", "TERM", made)
            assert docker("wait", made) == "0", docker("logs", made)
        finally:
            docker("rm", "--force", made)

    def run(self, tool: str, *terms: str) -> str:
        return docker("run", "--rm", *self.terms(), tool, *terms)

    def write(self, name: str, *documents: object) -> None:
        new = self.root / "manifests" / f".{name}"
        new.write_text(yaml.safe_dump_all(documents))
        os.chown(new, _USER, self.group)
        new.rename(self.root / "manifests" / name)

    def address(self, tool: str) -> str:
        """Return the address of the only Service, once it is served."""
        rows = json.loads(self.run(tool, "status", "--json"))
        return str(rows[0]["addresses"][0]) if rows and rows[0]["state"] == "serving" else ""


@contextmanager
def requested(address: str, number: int, expected: str) -> Iterator[list[str]]:
    """Ask 200 times in a second while the block runs; gives what failed, once that has ended."""
    failures: list[str] = []
    over = threading.Event()

    def ask_again() -> None:
        while not over.wait(0.005):
            try:
                assert ask(address, number) == expected
            except (OSError, AssertionError) as error:
                failures.append(str(error) or "another answer")

    thread = threading.Thread(target=ask_again)
    thread.start()
    try:
        yield failures
    finally:
        over.set()
        thread.join()


def proxies(served: Served) -> set[str]:
    """Return the proxies' containers and the moments at which they were started."""
    listed = docker("ps", "-q", "--filter", f"label=local-lb.dev/root={served.root}/local-lb").split()
    return {docker("inspect", "--format", "{{.Id}} {{.State.StartedAt}}", container) for container in listed}
