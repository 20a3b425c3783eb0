"""Several clusters in one stack, several stacks on one host: Services of the same name, and nobody is disturbed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.support.backends import refused
from tests.support.envoy_traffic import Load
from tests.support.network_spaces import inside
from tests.support.real_nodes import World
from tests.support.stages import Stage, envoys
from tests.support.traffic import addresses, answer, finalizers, ingress, make, up_and_serving
from tests.support.waiting import becomes
from tests.traffic.conftest import configured, new_world

pytestmark = [pytest.mark.cluster, pytest.mark.envoy]


@pytest.fixture(scope="module")
def second(machine: World) -> Iterator[World]:
    """Run a second cluster of one Node beside the first, on the same bridge."""
    with ExitStack() as stack:
        with inside(machine.host.space):
            made = new_world(stack, machine.host, "other", ("control-plane",))
        yield made
        stack.enter_context(inside(machine.host.space))


@pytest.fixture
def present(world: World, second: World) -> Iterator[World]:
    """Return the second cluster, emptied at the end."""
    del world
    yield second
    second.reset()


@pytest.fixture
def both(world: World, present: World) -> tuple[World, World]:
    """Make the same Service with the same NodePort in both clusters, with a pod in each."""
    made = make(world)
    number = made["spec"]["ports"][0]["nodePort"]
    make(present, "web", {**made["spec"]["ports"][0], "nodePort": number})
    world.pod("a", world.nodes["kind-worker"])
    present.pod("b", present.nodes["other-control-plane"])
    return world, present


def test_two_clusters_in_one_stack(play: Stage, both: tuple[World, World]) -> None:
    """Each Service has its own address and its own pods; a cluster that leaves the stack takes only its own along."""
    here, present = both
    play.configure(**configured(here, present))
    becomes(lambda: present.count_endpoints("web") == {1}, "the second cluster's Service has an endpoint")
    one = up_and_serving(here, play)
    two = up_and_serving(present, play)
    assert one != two
    assert (answer(one), answer(two)) == ("a", "b")
    play.configure(**configured(here))
    with Load(lambda: answer(one), 50) as requested:
        play.up()
    assert requested.failures("a") == []
    assert (ingress(present), finalizers(present)) == ([], [])
    assert refused(two, 80)


def test_two_stacks_on_one_host(play: Stage, both: tuple[World, World]) -> None:
    """Of the same project, with the same pool: no address is shared, and one's destroy doesn't disturb the other."""
    here, present = both
    play.configure("other", **configured(present))
    one = up_and_serving(here, play)
    becomes(lambda: present.count_endpoints("web") == {1}, "the second cluster's Service has an endpoint")
    assert play.run("--stack", "other", "up", "--yes").code == 0
    (two,) = addresses(present)
    assert one != two
    becomes(lambda: answer(two) == "b", "the second stack serves")
    with Load(lambda: answer(two), 50) as requested:
        assert play.run("destroy", "--yes").code == 0
    assert requested.failures("b") == []
    assert refused(one, 80)
    assert (ingress(here), finalizers(here)) == ([], [])
    assert addresses(present) == [two]
    assert len(envoys(play.root)) == 1
