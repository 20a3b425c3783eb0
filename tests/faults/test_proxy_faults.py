"""Faults of one proxy, each provoked for real: what the doctor says, what `up` does, and that nobody else notices."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from locallb.storage import paths
from tests.faults.support import VICTIM, Pair
from tests.support.backends import listening

pytestmark = [pytest.mark.envoy, pytest.mark.slow]


def directory(pair: Pair, key: str = VICTIM) -> Path:
    """Find the directory of a Service's proxy."""
    for path in (pair.stage.state_home / "proxies").iterdir():
        owner = json.loads((path / "owner.json").read_text())["owner"]
        if f"{owner['namespace']}/{owner['name']}" == key:
            return path
    raise AssertionError(key)


def kill(pair: Pair) -> None:
    """End the victim's process without a word."""
    os.kill(pair.stage.pids()[VICTIM], signal.SIGKILL)


def stop(pair: Pair) -> None:
    """Ask the victim's process to end, as `kill` does."""
    os.kill(pair.stage.pids()[VICTIM], signal.SIGTERM)
    listening(pair.address, 8080).close()


def delete_directory(pair: Pair) -> None:
    """Remove the directory under the running process."""
    shutil.rmtree(directory(pair))


def edit(name: str, old: str, new: str) -> Callable[[Pair], None]:
    """Edit a file by hand, as an editor does: a new file is renamed into place."""

    def fault(pair: Pair) -> None:
        path = directory(pair) / name
        text = path.read_text()
        assert old in text
        (path.parent / "edited").write_text(text.replace(old, new))
        (path.parent / "edited").rename(path)

    return fault


def delete_file(name: str) -> Callable[[Pair], None]:
    return lambda pair: (directory(pair) / name).unlink()


def suspend(pair: Pair) -> None:
    """Stop the victim's process without ending it: it is there and does nothing."""
    os.kill(pair.stage.pids()[VICTIM], signal.SIGSTOP)


def release_claim(pair: Pair) -> None:
    """Delete the claim of the victim's address behind everybody's back."""
    next(paths.ledger_directory().glob(f"{pair.address}~*")).unlink()


FAULTS = {
    "killed": (kill, "is gone: c/n/victim"),
    "stopped": (stop, "is gone: c/n/victim"),
    "directory deleted": (delete_directory, "c/n/victim"),
    "listeners edited": (edit("lds.json", "8080", "8099"), "somebody changed: c/n/victim"),
    "listeners broken": (edit("lds.json", "{", "["), "somebody changed: c/n/victim"),
    "clusters edited": (edit("cds.json", "tcp-8080-ipv4", "other"), "somebody changed: c/n/victim"),
    "bootstrap edited": (edit("bootstrap.json", "{", "{ "), "somebody changed: c/n/victim"),
    "endpoints deleted": (delete_file("eds-tcp-8080-ipv4.json"), "somebody changed: c/n/victim"),
    "suspended": (suspend, "doesn't answer: c/n/victim"),
    "admin socket deleted": (delete_file("admin.sock"), "doesn't answer: c/n/victim"),
    "claim deleted": (release_claim, "the claim of 127."),
}
"""Each fault, and what the doctor says of it."""


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_one_proxy_is_reported_and_repaired_under_the_same_address(pair: Pair, fault: str) -> None:
    """`doctor` tells it with a remedy, `up` repairs it, a second has nothing to do, the neighbour notices nothing."""
    provoke, terms = FAULTS[fault]
    provoke(pair)
    doctor = pair.doctor()
    assert terms in doctor.problems
    assert "locallb up" in doctor.problems
    assert doctor.code == 1
    done = pair.up()
    assert done.code == 0, done.err
    assert pair.serves()
    assert pair.doctor().code == 0, pair.doctor().problems
    assert pair.stage.run("up", "--yes", "--expect-no-changes").code == 0
    assert pair.neighbour_is_undisturbed()


@pytest.mark.parametrize("fault", ["killed", "directory deleted", "listeners edited", "claim deleted"])
def test_refresh_notices_and_up_repairs(pair: Pair, fault: str) -> None:
    """`refresh` corrects the state; what is missing is made by the next `up`."""
    FAULTS[fault][0](pair)
    assert pair.stage.run("refresh", "--yes").code == 0
    assert pair.up().code == 0
    assert pair.serves()
    assert pair.neighbour_is_undisturbed()


def test_a_port_taken_while_the_proxy_is_down_is_reported_with_its_holder_and_repaired_when_free(pair: Pair) -> None:
    """The doctor and `up` name it, the address stays, the neighbour serves."""
    kill(pair)
    with listening(pair.address, 8080):
        done = pair.up()
        reported = done.out + done.err
        assert f"({os.getpid()})" in reported
        assert "PortInUse" in reported or "in use" in reported
        assert pair.stage.status()[VICTIM]["state"] != "serving"
        assert pair.neighbour_is_undisturbed()
    assert pair.up().code == 0
    assert pair.serves()


def test_a_wildcard_listener_is_named_by_the_doctor(pair: Pair) -> None:
    """It is in the way of every address."""
    with listening("0.0.0.0", 3000):
        done = pair.stage.run("doctor")
        assert "3000/TCP" in done.out
        assert f"({os.getpid()})" in done.out
