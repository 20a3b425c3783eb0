"""Faults of a stack's state and of who shares the host: lost and copied state, stale claims, other stacks, locks."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import pytest

from locallb.engine.state import checkpoint
from locallb.ledger.ledger import Ledger
from locallb.model.identities import ClusterName, Home, ObjectKey, Owner
from locallb.storage import paths
from tests.faults.support import VICTIM, Pair
from tests.support.backends import Backend, ask, refused
from tests.support.manifests import port, service
from tests.support.stages import Stage

pytestmark = [pytest.mark.envoy, pytest.mark.slow]


def lose_state(pair: Pair) -> None:
    """Remove the state, its backups and journals."""
    shutil.rmtree(pair.stage.root / ".state/.pulumi")


def test_a_lost_state_is_found_again_in_the_world(pair: Pair) -> None:
    """The doctor lists what no state knows; `up` adopts it: same addresses, same processes."""
    pids = pair.stage.pids()
    lose_state(pair)
    doctor = pair.doctor()
    assert "left by a lost state" in doctor.problems
    assert "locallb gc" in doctor.problems
    assert pair.up().code == 0
    assert pair.stage.pids() == pids
    assert pair.serves()
    assert pair.neighbour_is_undisturbed()
    assert pair.doctor().code == 0


def test_gc_removes_only_what_a_lost_state_left(pair: Pair) -> None:
    """The Service is gone with the state: gc removes its proxy, claim and process, and keeps what `up` adopted."""
    lose_state(pair)
    (pair.stage.manifests / "victim.yaml").unlink()
    assert pair.up().code == 0
    assert f"address {pair.stage.prefix}" in pair.doctor().problems
    assert pair.stage.run("gc", "--yes").code == 0
    assert refused(pair.address, 8080)
    assert pair.doctor().problems == ""
    assert pair.neighbour_is_undisturbed()


def test_a_stale_claim_of_ours_is_reported_and_removed_by_gc(pair: Pair) -> None:
    """It keeps its address from everybody until then."""
    home = Home("local-lb", "dev", str(pair.stage.root))
    stale = Owner(home, ObjectKey(ClusterName("c"), "n", "gone"))
    Ledger(paths.ledger_directory()).claim(ip_address(pair.stage.at(30)), stale)
    assert f"address {pair.stage.at(30)} of c/n/gone" in pair.doctor().problems
    assert pair.up().code == 0
    assert pair.stage.run("gc", "--yes").code == 0
    assert pair.doctor().problems == ""
    assert pair.serves()
    assert pair.neighbour_is_undisturbed()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"address": "AT", "owner": 7}', "\x00\xff"])
def test_a_damaged_claim_is_reported_with_its_file_and_keeps_its_address_to_itself(pair: Pair, text: str) -> None:
    """Never removed, never taken over; everything else goes on."""
    path = paths.ledger_directory() / f"{pair.stage.at(30)}~0123456789abcdef.json"
    text = text.replace("AT", pair.stage.at(30))
    path.write_text(text)
    doctor = pair.doctor()
    assert str(path) in doctor.problems
    pair.stage.write("third.yaml", service("third", port(8080, 30000), loadBalancerIP=pair.stage.at(30)))
    assert pair.up().code == 0
    assert pair.stage.status()["n/third"]["reason"] == "InUse"
    assert path.read_text() == text
    assert pair.serves()
    assert pair.neighbour_is_undisturbed()


@pytest.fixture
def copy(pair: Pair) -> Stage:
    """Copy the project with its state, as `cp -a` does."""
    root = pair.stage.root / "copy"
    names = shutil.ignore_patterns("copy", "s", "*.sock")
    shutil.copytree(pair.stage.root, root, symlinks=True, ignore=names)
    return Stage(root)


def test_a_copied_project_takes_nothing_from_the_original(pair: Pair, copy: Stage) -> None:
    """Its `up` is refused, or serves at other addresses; its `destroy` removes nothing of the original."""
    done = copy.run("up", "--yes")
    assert "Traceback" not in done.out + done.err
    if done.code:
        assert "copy" in done.err
    assert pair.serves()
    assert pair.neighbour_is_undisturbed()
    destroyed = copy.run("destroy", "--yes")
    assert "Traceback" not in destroyed.out + destroyed.err
    assert pair.serves()
    assert pair.neighbour_is_undisturbed()
    assert pair.doctor().code == 0, pair.doctor().problems


def test_stacks_with_overlapping_pools_share_no_address(pair: Pair) -> None:
    """The second stack's pool lies within the first one's; when it is full the reason is told."""
    claimed = {pair.address, pair.neighbour}
    pair.stage.configure("other", pools=[{"name": "small", "addresses": [f"{pair.address}-{pair.address}"]}])
    done = pair.stage.run("--stack", "other", "up", "--yes")
    assert done.code == 0
    rows = pair.stage.run("--stack", "other", "status", "--json").json
    assert {row["reason"] for row in rows} == {"PoolExhausted"}
    pair.stage.configure("other", pools=[{"name": "all", "addresses": [f"{pair.stage.at(0)}/26"]}])
    assert pair.stage.run("--stack", "other", "up", "--yes").code == 0
    rows = pair.stage.run("--stack", "other", "status", "--json").json
    assert not claimed & {row["addresses"][0] for row in rows}
    assert {row["state"] for row in rows} == {"serving"}
    assert pair.serves()
    assert pair.neighbour_is_undisturbed()
    assert pair.doctor().code == 0


def test_freed_capacity_is_used_by_the_next_run(pair: Pair, backend: Callable[..., Backend]) -> None:
    """A full pool is told as PoolExhausted; when a Service goes, the waiting one gets its address."""
    pair.stage.configure(pools=[{"name": "two", "addresses": [pair.address, pair.neighbour]}])
    pair.stage.write("third.yaml", service("third", port(8080, backend("third").port)))
    assert pair.up().code == 0
    row = pair.stage.status()["n/third"]
    assert (row["state"], row["reason"]) == ("rejected", "PoolExhausted")
    assert "addresses" in pair.doctor().problems
    (pair.stage.manifests / "victim.yaml").unlink()
    pair.up()
    pair.up()
    assert pair.stage.addresses()["n/third"] == pair.address
    assert ask(pair.address, 8080) == "third: hello"
    assert pair.neighbour_is_undisturbed()


def lock(stage: Stage, pid: int, at: datetime, host: str = "") -> Path:
    """Write a lock as the official command line writes it."""
    folder = stage.root / ".state/.pulumi/locks/organization/local-lb/dev"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "0b0b0b0b-0000-4000-8000-000000000000.json"
    stamp = f"{at:%Y-%m-%dT%H:%M:%S.%f}Z"
    hostname = host or socket.gethostname()
    path.write_text(json.dumps({"pid": pid, "username": "me", "hostname": hostname, "timestamp": stamp}))
    return path


def test_a_lock_of_an_ended_process_is_reported_and_removed(pair: Pair) -> None:
    """With a notice; nothing has to be done by hand."""
    ended = subprocess.Popen(["true"])
    ended.wait()
    path = lock(pair.stage, ended.pid, datetime.now(UTC))
    assert "the next run removes it" in pair.stage.run("doctor").out
    assert pair.up().code == 0
    assert not path.exists()


def test_a_clock_that_jumped_takes_no_lock_from_a_process_that_lives(pair: Pair) -> None:
    """After a jump of the clock a living `pulumi` seems to have started after its own lock: it keeps it."""
    with subprocess.Popen(["pulumi", "60"], executable="/bin/sleep") as living:
        path = lock(pair.stage, living.pid, datetime.now(UTC) - timedelta(hours=5))
        done = pair.up()
        assert done.code == 1
        assert f"pid {living.pid}" in done.err
        assert path.exists()
        living.kill()
    assert pair.up().code == 0
    assert not path.exists()
    assert pair.neighbour_is_undisturbed()


def test_a_lock_whose_pid_is_another_process_now_is_removed(pair: Pair) -> None:
    """As after a reboot: the number lives on, the process doesn't."""
    with subprocess.Popen(["sleep", "60"]) as other:
        path = lock(pair.stage, other.pid, datetime.now(UTC) - timedelta(hours=5))
        assert pair.up().code == 0
        assert not path.exists()
        other.kill()


def test_lock_of_another_host_is_reported_and_kept(pair: Pair) -> None:
    """Whether that process lives can't be known here."""
    path = lock(pair.stage, 1, datetime.now(UTC), "elsewhere")
    assert "locked by me@elsewhere (pid 1)" in pair.doctor().problems
    assert str(path) in pair.doctor().problems
    done = pair.up()
    assert done.code == 1
    assert "elsewhere" in done.err
    path.unlink()
    assert pair.up().code == 0
    assert pair.neighbour_is_undisturbed()


@pytest.mark.parametrize("hours", [-48, 48])
def test_a_clock_that_jumped_harms_nothing(pair: Pair, hours: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two days back or forth between two runs: processes are known by clock ticks since boot, not by the time."""
    jump = timedelta(hours=hours).total_seconds()
    real, real_ns = time.time, time.time_ns
    monkeypatch.setattr(time, "time", lambda: real() + jump)
    monkeypatch.setattr(checkpoint, "time_ns", lambda: real_ns() + int(jump * 1e9))
    assert pair.doctor().code == 0
    assert pair.stage.run("up", "--yes", "--expect-no-changes").code == 0
    os.kill(pair.stage.pids()[VICTIM], signal.SIGKILL)
    assert pair.up().code == 0
    assert pair.serves()
    assert pair.neighbour_is_undisturbed()
