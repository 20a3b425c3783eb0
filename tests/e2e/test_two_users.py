"""Two state homes of one host without a common ledger, as two users have them: each keeps to addresses of its own."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import NamedTuple

import pytest

from tests.e2e.support import Backend, Done, Stage, ask, envoys, node, port, service, stage
from tests.environment import lent

pytestmark = pytest.mark.envoy
NAMES = ("a", "b", "c")


class Pair(NamedTuple):
    """Two stages with one pool, and nothing else in common."""

    one: Stage
    other: Stage


@pytest.fixture
def pair(backend: Callable[..., Backend]) -> Iterator[Pair]:
    """Return stages with Services of the same names."""
    with ExitStack() as stages:
        made = [stages.enter_context(stage()) for _ in range(2)]
        made[1].prefix = made[0].prefix
        for number, play in enumerate(made):
            play.configure()
            play.write("nodes.yaml", node())
            served = backend(f"of {number}")
            play.write("services.yaml", *(service(name, port(8080, served.port)) for name in NAMES))
        yield Pair(*made)


def up(play: Stage) -> Done:
    """Run `up` with the stage's own state home and ledger."""
    with lent(play.homes):
        return play.run("up", "--yes")


def addresses(play: Stage) -> dict[str, str]:
    """Return the address of each Service, all of which answer."""
    with lent(play.homes):
        rows = play.status()
        assert {row["state"] for row in rows.values()} == {"serving"}, rows
        return play.addresses()


def end_proxies(play: Stage) -> None:
    """End the processes, as a restart of the host does; claims and state stay."""
    for pid in envoys(play.root):
        descriptor = os.pidfd_open(pid)
        os.kill(pid, signal.SIGKILL)
        select.select([descriptor], [], [])
        os.close(descriptor)


def test_who_comes_back_to_addresses_in_anothers_use_moves_once(pair: Pair) -> None:
    """The other one keeps them, both answer, and the next run changes nothing."""
    assert up(pair.one).code == 0
    before = addresses(pair.one)
    end_proxies(pair.one)
    assert up(pair.other).code == 0
    assert addresses(pair.other) == before  # nobody listened there, and this ledger has none of the claims
    done = up(pair.one)
    assert done.code == 0, done.out + done.err
    moved = addresses(pair.one)
    assert not {*moved.values()} & {*before.values()}
    assert addresses(pair.other) == before
    for play, number in ((pair.one, 0), (pair.other, 1)):
        assert {ask(address, 8080) for address in addresses(play).values()} == {f"of {number}: hello"}
        with lent(play.homes):
            assert play.run("up", "--yes", "--expect-no-changes").code == 0
    assert addresses(pair.one) == moved


def test_who_comes_second_takes_other_addresses(pair: Pair) -> None:
    """No message names the first one."""
    assert up(pair.one).code == 0
    done = up(pair.other)
    assert done.code == 0
    assert "in use" not in (done.out + done.err).lower()
    assert not {*addresses(pair.one).values()} & {*addresses(pair.other).values()}
