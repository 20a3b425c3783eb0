"""SIGKILL of `up` and `destroy` at random moments: one more run converges, and nothing is left or doubled."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.support import Backend, Stage, ask, envoys, node, port, service

pytestmark = [pytest.mark.envoy, pytest.mark.slow]

KILLS = 50
STARTUP, LONGEST = 0.15, 0.6
"""Seconds before the first and until the last moment of a kill; importing takes most of the first part."""


def kill_in_the_middle(stage: Stage, command: str, seconds: float) -> None:
    """Start a command and kill it, with whatever it has started in its own session."""
    locallb = str(Path(sys.executable).parent / "locallb")
    process = subprocess.Popen(
        [locallb, "-C", str(stage.root), command, "--yes"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    time.sleep(seconds)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def test_after_a_kill_one_more_run_converges(play: Stage, backend: Callable[..., Backend]) -> None:
    """Fifty kills of `up` (with edits between) and `destroy`: each is healed by one run, at the same addresses."""
    one, two = backend("one"), backend("two")
    seed = random.SystemRandom().randrange(2**32)
    moment = random.Random(seed)
    versions = [
        [service("a", port(8080, one.port)), service("b", port(8080, two.port), port(9000, two.port))],
        [service("a", port(8080, two.port)), service("b", port(8080, two.port)), service("c", port(8080, one.port))],
    ]
    existing: dict[str, str] = {}
    for number in range(KILLS):
        wanted = versions[number % 2]
        play.write("all.yaml", node(), *wanted)
        command = "destroy" if number % 5 == 4 else "up"
        kill_in_the_middle(play, command, moment.uniform(STARTUP, LONGEST))
        done = play.run("up", "--yes")
        reported = f"seed {seed}, kill {number} of {command}: {done.out}{done.err}"
        assert done.code == 0, reported
        at = play.addresses()
        assert {key.removeprefix("n/") for key in at} == {str(manifest["metadata"]["name"]) for manifest in wanted}, (
            reported
        )
        assert all(existing.setdefault(key, address) == address for key, address in at.items()), reported
        assert len(envoys(play.root)) == len(wanted), reported
        assert all(ask(address, 8080).endswith(": hello") for address in at.values()), reported
        assert [leftover for leftover in play.run("gc", "--json").json if leftover["ours"]] == [], reported
        assert play.run("preview", "--expect-no-changes").code == 0, reported
    kill_in_the_middle(play, "destroy", moment.uniform(STARTUP, LONGEST))
    assert play.run("destroy", "--yes").code == 0
    assert envoys(play.root) == []
    assert list((play.state_home / "ledger").iterdir()) == []
    assert list((play.root / ".state/.pulumi/locks").rglob("*.json")) == []
