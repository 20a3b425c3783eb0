"""A hundred Services at once: all get an address and serve; deleted at once, nothing of them is left."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from locallb.host.facts import inotify_limit
from tests.support.real_nodes import World
from tests.support.stages import Stage, envoys
from tests.support.traffic import addresses, answer, follows, make

pytestmark = [pytest.mark.cluster, pytest.mark.envoy, pytest.mark.slow]

HUNDRED = [f"s{number:03}" for number in range(100)]
WIDE = [{"name": "wide", "addresses": ["127.77.0.0/24"]}]


def test_a_hundred_services_come_and_go_at_once(world: World, play: Stage) -> None:
    """Created in parallel, served after one run, each at an address of its own; deleted in parallel, gone after one."""
    if inotify_limit() < 3 * len(HUNDRED):
        pytest.skip("needs `sysctl -w fs.inotify.max_user_instances=8192`: inotify's limit is not per namespace")
    play.configure(sources=[world.plane.source], pools=WIDE, podRoutes="off")
    world.pod("a", world.nodes["kind-worker"])
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda name: make(world, name), HUNDRED))
    play.up()
    at = {name: addresses(world, name) for name in HUNDRED}
    assert len({address for (address,) in at.values()}) == len(HUNDRED)
    last = at[HUNDRED[-1]][0]
    follows(lambda: answer(last), "a")
    follows(lambda: {name: stated for name, (address,) in at.items() if (stated := answer(address)) != "a"}, {})
    assert len(envoys(play.root)) == len(HUNDRED)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(world.delete, HUNDRED))
    play.up()
    assert [name for name in HUNDRED if world.read(name)] == []
    assert envoys(play.root) == []
    assert list((play.state_home / "ledger").iterdir()) == []
