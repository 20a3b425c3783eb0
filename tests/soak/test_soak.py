"""Random churn and faults under `locallb watch` for minutes, with the laws of allocation checked all the time.

LOCALLB_SOAK_MINUTES says how long (5 unless given), LOCALLB_SOAK_SEED repeats a run as far as chance goes.
"""

from __future__ import annotations

import itertools
import os
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random

import httpx2
import pytest
from lightkube import ApiError

from tests.soak.faults import FIRST, SLOTS, Chaos, SmallDisk
from tests.soak.lasting import Faults
from tests.support.backends import Backend, Client
from tests.support.client_kinds import SERVICE
from tests.support.cluster_services import address, condition, ingress
from tests.support.control_plane import Objects
from tests.support.faulty_api import FaultyApi, api
from tests.support.loop_figures import IDLE, Figures, size, spent, unasked
from tests.support.manifests import port, service
from tests.support.odd_api import MAX
from tests.support.stages import Stage, envoys, stage
from tests.support.watching import Watch, answers, eventually, get

__all__ = ["api"]

pytestmark = [pytest.mark.soak, pytest.mark.envoy]

MINUTES = float(os.environ.get("LOCALLB_SOAK_MINUTES", "5"))
SEED = int(os.environ.get("LOCALLB_SOAK_SEED", "0")) or int(time.time())
KEEPER = FIRST + 2 * SLOTS
LASTING = 1 / 12
"""Part of the steps that are faults that last for a while."""
# An access review is posted, and only asks: no API server keeps it.
WRITE = "^(?!GET |POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews)"
TIMEOUT = 30.0
"""Seconds until all has converged after a fault: three times what it may take, on a machine that others use as well."""

REST = 10.0
"""Seconds in which a loop has taken in a fault, also one that has just begun, before what it costs is measured."""


@pytest.fixture
def play(api: FaultyApi) -> Iterator[Stage]:
    """Return a project on a small disk of its own."""
    with stage() as made:
        disk = SmallDisk(made.root / "s", made.root / ".state")
        if os.geteuid() == 0:
            disk.mount()
        try:
            made.configure(sources=[api.source])
            yield made
            made.run("destroy", "--yes")
        finally:
            if os.geteuid() == 0:
                disk.unmount()


@dataclass
class Soak:
    """Everything that happens, and what was measured."""

    chaos: Chaos
    faults: Faults
    order: Iterator[str]
    figures: Figures = field(default_factory=Figures)


# Where the API goes between connecting and the handshake, Python's ssl leaves the socket to the garbage collector.
@pytest.mark.filterwarnings("ignore:unclosed <ssl.SSLSocket:ResourceWarning")
def test_watch_under_random_churn_and_faults_loses_and_leaves_nothing(
    api: FaultyApi, cluster: Objects, play: Stage, tmp_path: Path
) -> None:
    """The bystander loses no request; no address ever has two owners; in the end all is as wanted, then all is gone."""
    chance = Random(SEED)
    print(f"seed {SEED}, {MINUTES:g} minutes")  # noqa: T201 - to repeat it
    backends = [Backend(f"s{slot}", port=FIRST + slot) for slot in range(SLOTS)]
    backends += [Backend(f"s{slot}", port=FIRST + SLOTS + slot) for slot in range(SLOTS)]
    backends.append(Backend("keeper", port=KEEPER))
    program = [sys.executable, str(Path(__file__).with_name("mortal.py")), str(tmp_path)]
    begin = partial(Watch, play, "--metrics", "127.0.0.1:0", program=program)
    chaos = Chaos(cluster.plane, cluster, play, chance, begin, begin())
    faults = Faults(chaos, api, tmp_path)
    soak = Soak(chaos, faults, itertools.cycle(chance.sample(sorted(faults.kinds), len(faults.kinds))))
    try:
        cluster.service(service("keeper", port(8080, KEEPER)))
        eventually(lambda: answers(address(cluster, "keeper"), 8080, "keeper"), chaos.watch)
        with Client(address(cluster, "keeper"), 8080) as bystander:
            shake(soak)
        assert bystander.failures == []
        print(f"{len(bystander.answers)} requests of the bystander, none failed; {dict(chaos.done)}")  # noqa: T201
        await_convergence(chaos)
        chaos.watch.process.send_signal(signal.SIGHUP)
        eventually(lambda: all(path.exists() for path in chaos.spoiled if path.parent.exists()), chaos.watch)
        for name in [*chaos.present, "keeper"]:
            cluster.delete(name)
        eventually(lambda: not any(cluster.read(name) for name in [*chaos.present, "keeper"]), chaos.watch)
        eventually(lambda: not envoys(play.root) and not ledger(play), chaos.watch)
    finally:
        chaos.watch.close()
        maximum, sibling = len(api.busiest()), unasked(api)
        print(f"{soak.figures}\n{len(api.lines)} requests to the API, {maximum} in the busiest second")  # noqa: T201
        print(f"at most {sibling} in a second besides those of {len(api.changes)} changes of Services")  # noqa: T201
        for backend in backends:
            backend.close()
    assert sibling <= MAX


def shake(soak: Soak) -> None:
    """Let things happen, in the first half to the loop as well; in the last quarter it may not grow any more."""
    begun, chaos = time.monotonic(), soak.chaos
    _shake_until(soak, begun + MINUTES * 30, loop=True)
    _shake_until(soak, begun + MINUTES * 45, loop=False)
    _crowd(chaos)
    before = size(chaos.watch.process.pid)
    _shake_until(soak, begun + MINUTES * 60, loop=False)
    after = size(chaos.watch.process.pid)
    print(f"memory (MiB), descriptors, threads: {before}, later {after}")  # noqa: T201
    assert after[0] < before[0] + 32
    assert after[1] < before[1] + 16
    assert after[2] < before[2] + 8


def _shake_until(soak: Soak, end: float, *, loop: bool) -> None:
    while time.monotonic() < end:
        if soak.chaos.chance.random() < LASTING:
            endure(soak, next(soak.order))
        else:
            soak.chaos.step(faults=True, loop=loop)
        check(soak.chaos)
    await_convergence(soak.chaos)


def _crowd(chaos: Chaos) -> None:
    """Have as many Services at once as there may be: threads that worked for them stay for the next ones."""
    for name in list(chaos.present):
        chaos.cluster.delete(name)
        del chaos.present[name]
    await_convergence(chaos)
    for _ in range(SLOTS):
        chaos.create()
    await_convergence(chaos)


def _rest(pid: int) -> None:
    """Wait until a loop has taken in what happened; one that never rests is measured as it is."""
    deadline = time.monotonic() + REST
    busy = True
    while busy and time.monotonic() < deadline:
        before = spent(pid)
        time.sleep(0.5)
        busy = spent(pid) - before > IDLE / 2


def endure(soak: Soak, kind: str) -> None:
    """Let something go wrong for a while, first while nobody changes anything, then while everybody does."""
    chaos, fault = soak.chaos, soak.faults.kinds[kind]
    await_convergence(chaos)
    eventually(
        lambda: get(chaos.watch, "/readyz")[0] == httpx2.codes.OK, chaos.watch
    )  # one that began has looked at all
    begun = time.monotonic()
    fault.begin()
    chaos.create()
    chaos.add_port()
    time.sleep(fault.settling)
    api = soak.faults.api
    if not fault.writes:
        eventually(lambda: not api.busiest(WRITE, time.monotonic() - fault.settling), chaos.watch)
    _rest(chaos.watch.process.pid)
    quiet = time.monotonic()
    logged = chaos.watch.log.stat().st_size
    seconds = chaos.chance.uniform(5, 9) * (MINUTES if kind == "gone" else 1)
    share = soak.figures.nothing_done(kind, chaos.watch.process.pid, seconds)
    assert share < IDLE, (kind, share, chaos.watch.log.read_bytes()[logged:].decode())
    written, requested = api.busiest(WRITE, quiet), api.busiest(since=quiet)
    assert fault.writes or not written, (kind, written)
    assert len(requested) <= MAX, (kind, requested)
    for _ in range(chaos.chance.randrange(10)):
        chaos.step(faults=False, loop=False)
        check(chaos)
    fault.end()
    took, requested = _converged(chaos, kind), api.busiest(since=begun)
    assert unasked(api, begun) <= MAX, (kind, requested)
    soak.figures.converged(kind, took, len(requested))


def _converged(chaos: Chaos, kind: str) -> float:
    """Wait until all is as wanted, and return how many seconds that took."""
    ended = time.monotonic()
    while why := _lacking(chaos):
        took = time.monotonic() - ended
        assert took < TIMEOUT, f"{took:.1f} s after {kind}: {why}\n{chaos.watch.reported()[-4000:]}"
        assert chaos.watch.process.poll() is None, chaos.watch.reported()
        time.sleep(0.05)
    return time.monotonic() - ended


def _lacking(chaos: Chaos) -> str:
    try:
        return lacking(chaos)
    except (OSError, KeyError, IndexError, ValueError) as error:
        return repr(error)


def check(chaos: Chaos) -> None:
    """Take a breath, and see that no address has two owners."""
    time.sleep(chaos.chance.uniform(0.02, 0.6))
    try:
        listed = list(chaos.cluster.client.list(SERVICE, namespace="n"))
    except (ApiError, httpx2.HTTPError):
        return
    reported = [
        entry["ip"] for item in listed for entry in (item["status"].get("loadBalancer") or {}).get("ingress") or ()
    ]
    assert len(reported) == len(set(reported)), reported
    claimed = [path.name.partition("~")[0] for path in ledger(chaos.play)]
    assert len(claimed) == len(set(claimed)), claimed


def await_convergence(chaos: Chaos) -> None:
    """Wait until every Service is served, every port of it, and nothing else is."""
    try:
        eventually(lambda: not lacking(chaos), chaos.watch)
    except AssertionError as error:
        raise AssertionError(f"{lacking(chaos)}; there shall be {chaos.present}\n{error}") from None


def lacking(chaos: Chaos) -> str:
    """Return what isn't as it shall be; empty if all is."""
    for name, count in chaos.present.items():
        if not ingress(chaos.cluster, name) or condition(chaos.cluster, name)["status"] != "True":
            return f"{name} isn't served"
        at = address(chaos.cluster, name)
        for number in range(count):
            if not answers(at, 8080 + number, name):
                return f"{name} doesn't answer at {8080 + number}"
    running, claims, wanted = len(envoys(chaos.play.root)), len(ledger(chaos.play)), len(chaos.present) + 1
    return "" if running == claims == wanted else f"{running} proxies and {claims} claims instead of {wanted}"


def ledger(play: Stage) -> list[Path]:
    return [path for path in (play.state_home / "ledger").glob("*~*.json") if path.is_file()]
