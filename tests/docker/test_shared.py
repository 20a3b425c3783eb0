"""Containers of the stack: one Envoy for many Services, and one that waits for the next."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import pytest

from tests.support.backends import Backend, ask, refused
from tests.support.containers import Harm, configure, containers, content, docker, each_harm, identities
from tests.support.manifests import node, port, service
from tests.support.shared_proxies import SHARED, SPARE, a_service_comes_changes_and_goes
from tests.support.stages import Stage
from tests.support.watching import eventually, watching

pytestmark = [pytest.mark.docker, pytest.mark.envoy]


@pytest.fixture
def pair(play: Stage, backend: Callable[..., Backend]) -> tuple[Stage, Backend]:
    """Return a stack of two Services that share a container."""
    server = backend("one")
    configure(play, proxies=SHARED)
    play.write("all.yaml", node(), service("a", port(8080, server.port)), service("b", port(8080, server.port)))
    play.up()
    return play, server


def test_shared_container_serves_each_service_at_its_own_address(pair: tuple[Stage, Backend]) -> None:
    """One container, two addresses, two states; another run changes nothing, and nothing is left over."""
    play, _ = pair
    at = play.addresses()
    assert set(containers(play)) == {"shared-1"}
    assert len(set(at.values())) == 2
    assert {ask(address, 8080) for address in at.values()} == {"one: hello"}
    assert {row["state"] for row in play.status().values()} == {"serving"}
    content(play)
    assert play.run("gc", "--json").json == []


def test_neighbours_notice_nothing_while_a_service_comes_changes_and_goes(pair: tuple[Stage, Backend]) -> None:
    """No request of the others fails, no stream of theirs is cut, and the container is the one it was."""
    play, backend = pair
    before = identities(play)
    a_service_comes_changes_and_goes(play, backend)
    assert identities(play) == before


@each_harm
def test_a_harmed_container_is_repaired_by_one_up(pair: tuple[Stage, Backend], harm: Harm) -> None:
    """Afterwards all serve at their addresses, and nothing is left to do."""
    play, _ = pair
    at, before = play.addresses(), identities(play)
    docker(*harm.terms, before["shared-1"])
    play.up()
    assert (play.addresses(), identities(play) == before) == (at, harm.goes_on)
    assert {ask(address, 8080) for address in at.values()} == {"one: hello"}
    content(play)


def test_a_service_that_goes_while_its_container_is_paused_keeps_its_address_until_it_is_free(
    pair: tuple[Stage, Backend],
) -> None:
    """An Envoy that doesn't answer may still listen: the address is released only when nobody does."""
    play, backend = pair
    at = play.addresses()
    docker("pause", containers(play)["shared-1"]["Id"])
    play.write("all.yaml", node(), service("a", port(8080, backend.port)))
    play.up()
    assert refused(at["n/b"], 8080)
    assert ask(at["n/a"], 8080) == "one: hello"
    content(play)


def test_a_new_service_takes_the_spare_and_the_next_one_waits(play: Stage, backend: Callable[..., Backend]) -> None:
    """The container that waited is the one that serves."""
    server = backend("one")
    configure(play, proxies=SPARE)
    play.write("all.yaml", node())
    play.up()
    waiting = identities(play)
    assert set(waiting) == {"spare-1"}
    play.write("all.yaml", node(), service("a", port(8080, server.port)))
    play.up()
    assert ask(play.addresses()["n/a"], 8080) == "one: hello"
    after = identities(play)
    assert set(after) == {"spare-1", "spare-2"}
    assert after["spare-1"] == waiting["spare-1"]
    content(play)


def test_an_envoy_that_hangs_gives_up_the_address_of_a_service_that_goes(pair: tuple[Stage, Backend]) -> None:
    """It can't be told and may listen still: it is ended before the address is free, and the next run repairs it."""
    play, backend = pair
    at, process = play.addresses(), containers(play)["shared-1"]["State"]["Pid"]
    os.kill(process, signal.SIGSTOP)
    play.write("all.yaml", node(), service("a", port(8080, backend.port)))
    assert play.run("up", "--yes", "--target", "b").code == 0
    assert refused(at["n/b"], 8080)
    play.up()
    assert ask(at["n/a"], 8080) == "one: hello"
    content(play)


@pytest.mark.parametrize(("proxies", "its"), [(SHARED, "shared-1"), (SPARE, "spare-1")])
def test_the_watch_loop_keeps_containers_of_the_stack_too(
    play: Stage, backend: Callable[..., Backend], proxies: object, its: str
) -> None:
    """Killed by `docker kill`, it serves again at the same address; a port comes by itself."""
    server = backend("one")
    configure(play, proxies=proxies)
    play.write("all.yaml", node())
    with watching(play) as watch:
        eventually(lambda: set(containers(play)) == {its}, watch)
        play.write("all.yaml", node(), service("a", port(8080, server.port)))
        eventually(lambda: ask(play.addresses()["n/a"], 8080), watch)
        at = play.addresses()["n/a"]
        before = containers(play)[its]["State"]["StartedAt"]
        docker("kill", containers(play)[its]["Id"])
        eventually(lambda: containers(play)[its]["State"]["StartedAt"] != before and ask(at, 8080), watch)
        play.write("all.yaml", node(), service("a", port(8080, server.port), port(9090, server.port)))
        eventually(lambda: ask(at, 9090), watch)
    assert play.addresses()["n/a"] == at
