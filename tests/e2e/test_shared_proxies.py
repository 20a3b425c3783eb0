"""Proxies of the stack, as a user meets them: shared ones and spares."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable
from functools import partial

import pytest

from locallb.config.settings import ProxySettings
from tests.e2e.killing import LONGEST, STARTUP, kill_in_the_middle
from tests.support.backends import Backend, ask
from tests.support.manifests import node, port, service
from tests.support.shared_proxies import SHARED, SPARE, Client, a_service_comes_changes_and_goes
from tests.support.stages import Stage, envoys
from tests.support.watching import eventually, watching

pytestmark = pytest.mark.envoy

KILLS = 10


@pytest.fixture
def pair(play: Stage, backend: Callable[..., Backend]) -> tuple[Stage, Backend]:
    """Return a stage with a shared proxy and two Services."""
    server = backend("one")
    play.configure(proxies=SHARED)
    play.write("all.yaml", node(), service("a", port(8080, server.port)), service("b", port(8080, server.port)))
    play.up()
    return play, server


def test_shared_envoy_serves_each_service_at_its_own_address(pair: tuple[Stage, Backend]) -> None:
    """One process, two addresses, two states; another run and a preview find nothing to change."""
    play, _ = pair
    at = play.addresses()
    assert len(envoys(play.root)) == 1
    assert len(set(at.values())) == 2
    assert {ask(address, 8080) for address in at.values()} == {"one: hello"}
    assert {row["state"] for row in play.status().values()} == {"serving"}
    assert play.run("up", "--yes", "--expect-no-changes").code == 0
    assert play.run("preview", "--expect-no-changes", "--format", "markdown").code == 0
    doctor = play.run("doctor")
    assert "1 proxy run" in doctor.out
    assert play.run("gc", "--json").json == []


def test_neighbours_notice_nothing_while_a_service_comes_changes_and_goes(pair: tuple[Stage, Backend]) -> None:
    """Only the load balancer of that Service is touched; no request of the others fails, no stream of theirs is cut."""
    a_service_comes_changes_and_goes(*pair)


def test_a_killed_shared_proxy_is_repaired_by_one_up(pair: tuple[Stage, Backend]) -> None:
    """SIGKILL of the Envoy: afterwards all serve at their addresses, and nothing is left to do."""
    play, _ = pair
    at = play.addresses()
    os.kill(envoys(play.root)[0], signal.SIGKILL)
    play.up()
    assert play.addresses() == at
    assert {ask(address, 8080) for address in at.values()} == {"one: hello"}
    assert play.run("up", "--yes", "--expect-no-changes").code == 0


def test_a_target_is_one_service_of_many(pair: tuple[Stage, Backend]) -> None:
    """`--target` brings a new Service to the shared proxy and leaves another new one alone."""
    play, backend = pair
    names = "abcd"
    play.write("all.yaml", node(), *(service(name, port(8080, backend.port)) for name in names))
    assert play.run("up", "--yes", "--target", "c").code == 0
    assert {key for key, row in play.status().items() if row["state"] == "serving"} == {"n/a", "n/b", "n/c"}


def test_changed_count_of_shared_proxies_keeps_all_addresses_serving(
    play: Stage, backend: Callable[..., Backend]
) -> None:
    """By `up`."""
    server = backend("one")
    play.write("all.yaml", node(), *(service(name, port(8080, server.port)) for name in "abcd"))
    existing: dict[str, str] = {}
    for count in (2, 1, 3):
        play.configure(proxies={"mode": "shared", "count": count})
        play.up()
        assert len(envoys(play.root)) == count
        existing = existing or play.addresses()
        assert play.addresses() == existing
        assert {ask(address, 8080) for address in existing.values()} == {"one: hello"}


@pytest.mark.parametrize(("before", "after"), [(SHARED, "per-service"), ("per-service", SHARED)])
def test_going_over_to_or_from_shared_proxies_is_refused_in_a_sentence(
    play: Stage, backend: Callable[..., Backend], before: str, after: str
) -> None:
    """Both would want the same addresses; after a destroy it works."""
    server = backend("one")
    play.write("all.yaml", node(), service("a", port(8080, server.port)))
    play.configure(proxies=before)
    play.up()
    play.configure(proxies=after)
    done = play.run("up", "--yes")
    assert done.code == 1
    assert f"local-lb:proxies is {after}, but this stack's proxies are {before}: destroy the stack first" in done.err
    play.configure(proxies=before)
    assert ask(play.addresses()["n/a"], 8080) == "one: hello"
    assert play.run("destroy", "--yes").code == 0
    play.configure(proxies=after)
    play.up()
    assert ask(play.addresses()["n/a"], 8080) == "one: hello"


def test_a_new_service_takes_the_spare_and_the_next_one_waits(play: Stage, backend: Callable[..., Backend]) -> None:
    """It is served by the process that waited; a second run changes nothing; with the Service its process goes."""
    server = backend("one")
    play.configure(proxies=SPARE)
    play.write("all.yaml", node(), service("a", port(8080, server.port)))
    play.up()
    waiting = play.pids()["/spare-1"]
    play.write("all.yaml", node(), service("a", port(8080, server.port)), service("b", port(8080, server.port)))
    play.up()
    assert ask(play.addresses()["n/b"], 8080) == "one: hello"
    assert play.pids()["/spare-1"] == waiting
    assert "/spare-2" in play.pids()
    assert play.run("up", "--yes", "--expect-no-changes").code == 0
    play.write("all.yaml", node(), service("a", port(8080, server.port)))
    play.up()
    assert set(play.pids()) == {"n/a", "/spare-2"}
    assert len(envoys(play.root)) == 2
    assert play.run("destroy", "--yes").code == 0
    assert envoys(play.root) == []


def test_a_spare_that_died_is_started_again(play: Stage, backend: Callable[..., Backend]) -> None:
    """Nobody was served by it, and it waits again after the next run."""
    server = backend("one")
    play.configure(proxies=SPARE)
    play.write("all.yaml", node(), service("a", port(8080, server.port)))
    play.up()
    dead = play.pids()["/spare-1"]
    os.kill(dead, signal.SIGKILL)
    play.up()
    assert play.pids()["/spare-1"] != dead
    assert len(envoys(play.root)) == 2


def test_gc_removes_shared_proxies_of_a_lost_state(pair: tuple[Stage, Backend]) -> None:
    """`gc` lists the shared proxy and the addresses as this stack's, and removes them."""
    play, _ = pair
    for path in (play.root / ".state").glob(".pulumi/stacks/local-lb/dev.json*"):
        path.unlink()
    remaining = play.run("gc", "--json").json
    assert sorted(leftover["sort"] for leftover in remaining) == ["address", "address", "proxy"]
    assert any(leftover["owner"].startswith("shared-1 of local-lb/dev") and leftover["ours"] for leftover in remaining)
    assert play.run("gc", "--yes").code == 0
    assert envoys(play.root) == []


@pytest.mark.parametrize(("proxies", "its"), [(SHARED, "/shared-1"), (SPARE, "/spare-1")])
def test_the_watch_loop_keeps_proxies_of_the_stack_too(
    play: Stage, backend: Callable[..., Backend], proxies: object, its: str
) -> None:
    """A Service that comes is served by the proxy that was there; a killed one serves again; a loop takes over."""
    server = backend("one")
    play.configure(proxies=proxies)
    play.write("all.yaml", node())
    with watching(play) as watch:
        eventually(lambda: its in play.pids(), watch)
        play.write("all.yaml", node(), service("a", port(8080, server.port)))
        eventually(lambda: ask(play.addresses()["n/a"], 8080) == "one: hello", watch)
        pid = play.pids()[its]
        os.kill(pid, signal.SIGKILL)
        eventually(lambda: play.pids()[its] != pid, watch)
        eventually(lambda: ask(play.addresses()["n/a"], 8080) == "one: hello", watch)
    with watching(play) as watch:
        play.write("all.yaml", node(), service("b", port(8080, server.port)))
        eventually(lambda: ask(play.addresses()["n/b"], 8080) == "one: hello", watch)
        eventually(lambda: "n/a" not in play.addresses(), watch)
    assert "Traceback" not in watch.reported()


@pytest.mark.slow
@pytest.mark.parametrize(("proxies", "processes"), [(SHARED, {2: 1, 3: 1}), (SPARE, {2: 3, 3: 4})])
def test_after_a_kill_one_more_run_converges(
    play: Stage, backend: Callable[..., Backend], proxies: object, processes: dict[int, int]
) -> None:
    """Kills of `up` (with Services that come and go between) and `destroy`: each is healed by one run."""
    server = backend("one")
    seed = random.SystemRandom().randrange(2**32)
    moment = random.Random(seed)
    play.configure(proxies=proxies)
    for number in range(KILLS):
        names = ("ab", "bcd")[number % 2]
        play.write("all.yaml", node(), *(service(name, port(8080, server.port)) for name in names))
        command = "destroy" if number % 5 == 4 else "up"
        kill_in_the_middle(play, command, moment.uniform(STARTUP, LONGEST))
        done = play.run("up", "--yes")
        reported = f"seed {seed}, kill {number} of {command}: {done.out}{done.err}"
        assert done.code == 0, reported
        at = play.addresses()
        assert set(at) == {f"n/{name}" for name in names}, reported
        assert len(envoys(play.root)) == processes[len(names)], reported
        assert {ask(address, 8080) for address in at.values()} == {"one: hello"}, reported
        assert [leftover for leftover in play.run("gc", "--json").json if leftover["ours"]] == [], reported
        assert play.run("preview", "--expect-no-changes").code == 0, reported
    assert play.run("destroy", "--yes").code == 0
    assert envoys(play.root) == []
    assert list((play.state_home / "ledger").iterdir()) == []


def test_shared_proxies_grow_with_the_services_and_neighbours_notice_nothing(
    play: Stage, backend: Callable[..., Backend], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two Services each: a third starts another Envoy and its end ends that one; no request of the others fails."""
    monkeypatch.setattr("locallb.config.proxies.ProxySettings", partial(ProxySettings, each=2))
    server = backend("one")
    play.configure(proxies=SHARED)

    def serve(names: str) -> list[int]:
        play.write("all.yaml", node(), *(service(name, port(8080, server.port)) for name in names))
        play.up()
        assert {ask(address, 8080) for address in play.addresses().values()} == {"one: hello"}
        return envoys(play.root)

    first = serve("ab")
    assert len(first) == 1
    with Client(play.addresses()["n/a"], 8080) as client:
        both = serve("abc")
        assert set(first) < set(both)
        assert len(both) == 2
        assert serve("abcd") == both
        assert play.run("up", "--yes", "--expect-no-changes").code == 0
        assert serve("ab") == first
    assert (client.failures, client.answers > 0) == ([], True)
