"""Random churn and faults under `locallb watch` for minutes, with the laws of allocation checked all the time.

LOCALLB_SOAK_MINUTES says how long (5 unless given), LOCALLB_SOAK_SEED repeats a run as far as chance goes.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

import httpx2
import pytest
from lightkube import ApiError

from locallb.kubernetes.api.client import SERVICE
from tests.cluster.controlplane import ControlPlane, Objects
from tests.cluster.test_life import address, condition, ingress
from tests.e2e.support import Backend, Stage, envoys, port, service, stage
from tests.e2e.test_changes import Client
from tests.e2e.watching import Watch, answers, becomes
from tests.soak.faults import FIRST, SLOTS, Chaos, SmallDisk

pytestmark = [pytest.mark.soak, pytest.mark.envoy]

MINUTES = float(os.environ.get("LOCALLB_SOAK_MINUTES", "5"))
SEED = int(os.environ.get("LOCALLB_SOAK_SEED", "0")) or int(time.time())
KEEPER = FIRST + 2 * SLOTS


@pytest.fixture
def play(plane: ControlPlane) -> Iterator[Stage]:
    """Return a project on a small disk of its own."""
    with stage() as made:
        disk = SmallDisk(made.root / "s", made.root / ".state")
        if os.geteuid() == 0:
            disk.mount()
        try:
            made.configure(sources=[plane.source])
            yield made
            made.run("destroy", "--yes")
        finally:
            if os.geteuid() == 0:
                disk.unmount()


def test_nothing_is_lost_doubled_or_left_behind(plane: ControlPlane, cluster: Objects, play: Stage) -> None:
    """The bystander loses no request; no address ever has two owners; in the end all is as wanted, then all is gone."""
    chance = Random(SEED)
    print(f"seed {SEED}, {MINUTES:g} minutes")  # noqa: T201 - to repeat it
    backends = [Backend(f"s{slot}", port=FIRST + slot) for slot in range(SLOTS)]
    backends += [Backend(f"s{slot}", port=FIRST + SLOTS + slot) for slot in range(SLOTS)]
    backends.append(Backend("keeper", port=KEEPER))
    chaos = Chaos(plane, cluster, play, chance, Watch(play))
    try:
        cluster.service(service("keeper", port(8080, KEEPER)))
        becomes(lambda: answers(address(cluster, "keeper"), 8080, "keeper"), chaos.watch)
        with Client(address(cluster, "keeper"), 8080) as bystander:
            shake(chaos)
        assert bystander.failures == []
        print(f"{len(bystander.answers)} requests of the bystander, none failed; {dict(chaos.done)}")  # noqa: T201
        await_convergence(chaos)
        chaos.watch.process.send_signal(signal.SIGHUP)
        becomes(lambda: all(path.exists() for path in chaos.spoiled if path.parent.exists()), chaos.watch)
        for name in [*chaos.there, "keeper"]:
            cluster.delete(name)
        becomes(lambda: not any(cluster.read(name) for name in [*chaos.there, "keeper"]), chaos.watch)
        becomes(lambda: not envoys(play.root) and not ledger(play), chaos.watch)
    finally:
        chaos.watch.close()
        for each in backends:
            each.close()


def shake(chaos: Chaos) -> None:
    """Let things happen, in the first half to the loop as well; in the last quarter it may not grow any more."""
    begun = time.monotonic()
    _shake_until(chaos, begun + MINUTES * 30, loop=True)
    _shake_until(chaos, begun + MINUTES * 45, loop=False)
    before = size(chaos.watch.process.pid)
    _shake_until(chaos, begun + MINUTES * 60, loop=False)
    after = size(chaos.watch.process.pid)
    print(f"memory (MiB), descriptors, threads: {before}, later {after}")  # noqa: T201
    assert after[0] < before[0] + 32
    assert after[1] < before[1] + 16
    assert after[2] < before[2] + 8


def _shake_until(chaos: Chaos, end: float, *, loop: bool) -> None:
    while time.monotonic() < end:
        chaos.step(faults=True, loop=loop)
        check(chaos)
    await_convergence(chaos)


def check(chaos: Chaos) -> None:
    """Take a breath, and see that no address has two owners."""
    time.sleep(chaos.chance.uniform(0.02, 0.6))
    try:
        listed = list(chaos.cluster.client.list(SERVICE, namespace="n"))
    except (ApiError, httpx2.HTTPError):
        return
    told = [entry["ip"] for one in listed for entry in (one["status"].get("loadBalancer") or {}).get("ingress") or ()]
    assert len(told) == len(set(told)), told
    claimed = [path.name.partition("~")[0] for path in ledger(chaos.play)]
    assert len(claimed) == len(set(claimed)), claimed


def await_convergence(chaos: Chaos) -> None:
    """Wait until every Service is served, every port of it, and nothing else is."""
    try:
        becomes(lambda: not lacking(chaos), chaos.watch)
    except AssertionError as error:
        raise AssertionError(f"{lacking(chaos)}; there shall be {chaos.there}\n{error}") from None


def lacking(chaos: Chaos) -> str:
    """Return what isn't as it shall be; empty if all is."""
    for name, count in chaos.there.items():
        if not ingress(chaos.cluster, name) or condition(chaos.cluster, name)["status"] != "True":
            return f"{name} isn't served"
        at = address(chaos.cluster, name)
        for number in range(count):
            if not answers(at, 8080 + number, name):
                return f"{name} doesn't answer at {8080 + number}"
    running, claims, wanted = len(envoys(chaos.play.root)), len(ledger(chaos.play)), len(chaos.there) + 1
    return "" if running == claims == wanted else f"{running} proxies and {claims} claims instead of {wanted}"


def ledger(play: Stage) -> list[Path]:
    """List the claims."""
    return list((play.state_home / "ledger").glob("*~*.json"))


def size(pid: int) -> tuple[int, int, int]:
    """Return what a process has: MiB, open descriptors, threads."""
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    descriptors = len(list(Path(f"/proc/{pid}/fd").iterdir()))
    return int(status["VmRSS"].split()[0]) // 1024, descriptors, int(status["Threads"])
