"""kill -9 of ours at random moments, while Services come, change and go: nothing served is disturbed, all converges."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.real_nodes import World
from tests.support.stages import Stage, envoys
from tests.support.traffic import addresses, answer, finalizers, make, sees_endpoints, served, up_and_serving

pytestmark = [pytest.mark.cluster, pytest.mark.envoy, pytest.mark.slow]

KILLS = 32
LATEST = 2.0
"""Seconds after which a command is killed at the latest: most take less, some take more."""
NAMES = ("one", "two", "three", "four")


def killed(play: Stage, command: str, after: float) -> None:
    """Start a command of ours, and kill it after so many seconds unless it ended by itself."""
    terms = [str(Path(sys.executable).parent / "locallb"), "-C", str(play.root), command]
    process = subprocess.Popen(
        [*terms, "--yes"] if command == "up" else terms,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        process.wait(after)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def test_killed_again_and_again_it_serves_and_converges(world: World, play: Stage) -> None:
    """A Service that is there and left alone answers after every kill; after one whole run everything is as asked."""
    seed = random.randrange(1 << 32)
    chance = random.Random(seed)
    make(world, "steady")
    world.pod("a", world.nodes["kind-worker"])
    at = up_and_serving(world, play, "steady")
    wanted: set[str] = set()

    def create(name: str) -> None:
        if world.read(name) is None:
            make(world, name)
            wanted.add(name)

    def change(name: str) -> None:
        if name in wanted:
            ports = world.ports(name)
            number = 1000 + chance.randrange(9000)
            retained = [port for port in ports if port["port"] == 80]
            world.change(name, {"spec": {"ports": [*retained, served(number)]}})

    def delete(name: str) -> None:
        if name in wanted:
            world.delete(name)
            wanted.discard(name)

    acts: list[Callable[[str], None]] = [create, create, change, delete]
    for number in range(KILLS):
        chance.choice(acts)(chance.choice(NAMES))
        killed(play, "watch" if number % 4 == 3 else "up", chance.uniform(0.2, LATEST))
        assert answer(at) == "a", f"after kill {number} of seed {seed}"
    play.up()
    check(world, play, wanted | {"steady"}, seed)
    for name in [*wanted, "steady"]:
        world.delete(name)
    play.up()
    assert {name: world.read(name) for name in (*NAMES, "steady")} == dict.fromkeys((*NAMES, "steady")), seed
    assert envoys(play.root) == []
    assert list((play.state_home / "ledger").iterdir()) == []
    assert list((play.state_home / "proxies").iterdir()) == []


def check(world: World, play: Stage, wanted: set[str], seed: int) -> None:
    """See that exactly the Services that are wanted are served, every port at an address of its own."""
    for name in wanted:
        sees_endpoints(world, name, 1)
    play.up()
    assert {name for name in (*NAMES, "steady") if world.read(name)} == wanted, seed
    at = {name: addresses(world, name) for name in wanted}
    assert all(len(addresses_of) == 1 for addresses_of in at.values()), (seed, at)
    assert len({addresses_of[0] for addresses_of in at.values()}) == len(wanted), (seed, at)
    for name, (address,) in at.items():
        for port in world.ports(name):
            assert answer(address, port["port"]) == "a", (seed, name, port)
        assert len(finalizers(world, name)) == 1
    assert len(envoys(play.root)) == len(wanted), seed
