"""What the tests of containers share: Docker's own command, and a stack's containers."""

from __future__ import annotations

import json
import secrets
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from typing import Any

import yaml

from locallb.planning.containers import LABEL_PREFIX
from tests.e2e.support import Done, Stage


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


def let_go(address: str, port: int) -> bool:
    """Tell whether a client is refused, or let go at once as Docker's own proxy does."""
    try:
        with socket.create_connection((address, port), timeout=5) as client:
            client.settimeout(0.05)
            return client.recv(1) == b""
    except TimeoutError:
        return False
    except OSError:
        return True


def await_true(what: Callable[[], bool]) -> None:
    """Wait until it is so."""
    deadline = time.monotonic() + 30
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def stream_outlives(address: str, port: int, ending: Callable[[], Done]) -> Done:
    """Open a stream, have `ending` take its container away, and see that the stream goes on until it has ended."""
    ended: list[Done] = []
    with socket.create_connection((address, port)) as stream, stream.makefile("rb") as answers:
        stream.sendall(b"one\n")
        assert answers.readline().endswith(b": one\n")
        thread = threading.Thread(target=lambda: ended.append(ending()))
        thread.start()
        await_true(lambda: let_go(address, port))
        stream.sendall(b"two\n")
        assert answers.readline().endswith(b": two\n")
    thread.join()
    return ended[0]
