"""Two state homes of one host without a common ledger, as two users have them: each keeps to addresses of its own."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple

import pytest

from locallb.ledger.claims import LedgerError
from locallb.ledger.ledger import ClaimRequest, Ledger
from locallb.model.identities import ClusterName, Home, ObjectKey, Owner
from tests.support.backends import Backend, ask
from tests.support.environment import lent
from tests.support.manifests import node, port, service
from tests.support.stages import Done, Stage, envoys, stage

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


def begun(play: Stage) -> subprocess.Popen[str]:
    """Begin the same in a process of its own; this one's environment stays, which threads read meanwhile."""
    command = [str(Path(sys.executable).parent / "locallb"), "-C", str(play.root), "up", "--yes"]
    environment = {**os.environ, **play.homes}
    return subprocess.Popen(
        command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def ended(process: subprocess.Popen[str]) -> None:
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 0, out


def check(done: Done) -> None:
    assert done.code == 0, done.out + done.err


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


def owner_of(play: Stage, number: int) -> Owner:
    """Make an owner in a stage's stack."""
    return Owner(Home("local-lb", "dev", str(play.root)), ObjectKey(ClusterName("c"), "n", f"theirs-{number}"))


def beaten_once(monkeypatch: pytest.MonkeyPatch, other: Callable[[], object]) -> None:
    """Let `other` happen between the plan of the next command and its claims."""
    claim_all, waiting = Ledger.claim_all, [other]

    def late(self: Ledger, wanted: Sequence[ClaimRequest]) -> list[LedgerError | None]:
        while waiting:
            waiting.pop()()
        return claim_all(self, wanted)

    monkeypatch.setattr(Ledger, "claim_all", late)


def test_who_starts_in_the_same_moment_without_a_common_ledger_takes_other_addresses(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both chose the same ones, and one of them finds them in use: it plans again, and neither fails."""
    beaten_once(monkeypatch, lambda: ended(begun(pair.other)))
    check(up(pair.one))
    assert not {*addresses(pair.one).values()} & {*addresses(pair.other).values()}
    with lent(pair.one.homes):
        assert pair.one.run("up", "--yes", "--expect-no-changes").code == 0


def test_a_claim_of_what_another_has_claimed_meanwhile_is_planned_again(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of two stacks with one ledger."""
    ledger = Ledger(pair.one.state_home / "ledger")
    theirs = [ip_address(pair.one.at(number)) for number in range(32) if number % 2]

    def take() -> None:
        ledger.claim_all([ClaimRequest(address, owner_of(pair.other, n)) for n, address in enumerate(theirs)])

    beaten_once(monkeypatch, take)
    check(up(pair.one))
    claimed = {str(claim.address) for claim in ledger.claims() if claim.owner.home.root == str(pair.other.root)}
    assert claimed
    assert not {*addresses(pair.one).values()} & claimed


@pytest.mark.slow
def test_six_stacks_of_two_ledgers_come_up_at_one_moment(backend: Callable[..., Backend]) -> None:
    """Three have one ledger, three another one, and all of them one pool: none fails, no address has two owners."""
    with ExitStack() as stages:
        made = [stages.enter_context(stage()) for _ in range(6)]
        served = backend("of all")
        for number, play in enumerate(made):
            play.prefix = made[0].prefix
            play.configure()
            play.write("nodes.yaml", node())
            play.write("services.yaml", *(service(name, port(8080, served.port)) for name in NAMES))
            play.ledger = made[number % 2].state_home / "ledger"
        for process in [begun(play) for play in made]:
            ended(process)
        found = [address for play in made for address in addresses(play).values()]
        assert len(set(found)) == len(made) * len(NAMES)
        assert {ask(address, 8080) for address in found} == {"of all: hello"}


def test_up_that_never_gets_what_it_planned_ends_with_its_reason(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """It doesn't go on for ever."""

    def refused(self: Ledger, wanted: Sequence[ClaimRequest]) -> list[LedgerError | None]:
        del self
        return [LedgerError("it is another's") for _ in wanted]

    monkeypatch.setattr(Ledger, "claim_all", refused)
    done = up(pair.one)
    assert done.code == 1
    assert "it is another's" in done.err
