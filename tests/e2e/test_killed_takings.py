"""SIGKILL of `watch` before each step of giving a Gateway the Envoy that waits: the next run does the rest."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence
from itertools import count
from pathlib import Path

import pytest

from tests.support.gateway_clients import answering, get, service, web
from tests.support.gateway_objects import backend, gateway_class, route, rule
from tests.support.manifests import node, port
from tests.support.manifests import service as balancer
from tests.support.stages import Stage, envoys
from tests.support.watching import Watch, eventually, watching

pytestmark = [pytest.mark.envoy, pytest.mark.slow]

DYING = Path(__file__).with_name("dying.py")
PARTS = 8
"""Tests that have every so many steps each."""
LEAST = 4
"""Steps that each of them has for sure: of claims, files, the state, the next spare's process."""
SPARES = {"mode": "per-service", "spares": 1}


def gateways(play: Stage, *, present: bool) -> None:
    """Have the Gateway, or have it no more."""
    routed = (web(), route(rule("/", backends=[backend("one")])))
    play.write("gateway.yaml", gateway_class(), *(routed if present else ()))


def killed_at(play: Stage, number: int) -> Sequence[str] | None:
    """Let a loop die before this step of taking the spare; return the steps, None where it came to the end."""
    trigger, log = play.root / "armed", play.root / "effects"
    log.unlink(missing_ok=True)
    watch = Watch(play, program=[sys.executable, "-P", str(DYING), str(number), str(trigger), str(log)])
    try:
        eventually(lambda: "converged" in watch.reported(), watch)
        trigger.touch()
        gateways(play, present=True)

        def over() -> bool:
            return watch.process.poll() is not None or (
                len(envoys(play.root)) > 2 and watch.reported().count("converged") > 1
            )

        eventually(over)
        return log.read_text().splitlines() if watch.process.poll() is not None else None
    finally:
        trigger.unlink(missing_ok=True)
        watch.process.kill()
        watch.process.wait()


def heal(play: Stage, number: int) -> None:
    """Run once more: every third time as a loop, otherwise as a command."""
    if number % 3:
        play.up()
        return
    with watching(play) as watch:
        eventually(lambda: len(play.pids()) > 2 and "converged" in watch.reported().rpartition("updated")[2], watch)


def served(address: str) -> bool:
    with contextlib.suppress(OSError):
        return get(address) == (200, "one / -")
    return False


@pytest.mark.parametrize("first", range(PARTS))
def test_before_each_step_of_taking_a_spare(play: Stage, first: int) -> None:
    """Who serves is never disturbed, the Envoy that waits is neither lost nor doubled, and nothing is left."""
    play.configure(proxies=SPARES)
    with answering("one") as one:
        play.write("cluster.yaml", node(), service("one", one), balancer("steady", port(8081, one)))
        gateways(play, present=True)
        play.up()
        address, steady = (play.addresses()[key] for key in ("shop/web", "n/steady"))
        gateways(play, present=False)
        play.up()
        table = list[str]()
        for number in count(first, PARTS):
            before = sorted(envoys(play.root))
            assert len(before) == 2
            steps = killed_at(play, number)
            reported = f"step {number}: {steps}"
            assert set(before) <= set(envoys(play.root)), reported
            assert get(steady, port=8081)[0] == 200, reported
            heal(play, number)
            assert set(before) <= set(envoys(play.root)), reported
            assert (served(address), get(steady, port=8081)[0], len(envoys(play.root))) == (True, 200, 3), reported
            assert [remaining for remaining in play.run("gc", "--json").json if remaining["ours"]] == [], reported
            assert play.run("preview", "--expect-no-changes").code == 0, reported
            gateways(play, present=False)
            play.up()
            if steps is None:
                break
            table.append(steps[-1])
        assert len(table) >= LEAST, table
        assert play.run("destroy", "--yes").code == 0
    assert envoys(play.root) == []
    assert list((play.state_home / "ledger").iterdir()) == []
    assert list((play.state_home / "proxies").iterdir()) == []
