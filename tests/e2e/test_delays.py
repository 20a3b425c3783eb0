"""Which outside party doesn't answer, what waits for it, and what fails: in `status` of another process and metrics."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.backends import Backend
from tests.support.fake_api import served, source, versioned
from tests.support.manifests import node, port, service
from tests.support.stages import Stage
from tests.support.watching import eventually, get, watching

pytestmark = pytest.mark.envoy


def test_cluster_whose_writes_hang_is_named_with_what_waits_for_it(
    play: Stage, backend: Callable[..., Backend], tmp_path: Path
) -> None:
    """As long as it does, and no longer; also by a watch that was killed."""
    web = backend("web")
    with served(tmp_path) as (api, access):
        play.configure(sources=[source(access)])
        api.nodes = [versioned(node())]
        api.services = [versioned(service("web", port(8080, web.port)))]
        api.is_writing.clear()
        with watching(play, "--metrics", "127.0.0.1:0") as watch:
            eventually(lambda: "cluster c: no answer for " in play.run("status").err, watch)
            assert "; 1 load balancer waits for it (c/n/web)" in play.run("status").err
            (row,) = play.run("status", "--json").json
            assert [waits["party"] for waits in row["waits"]] == ["cluster c"]
            assert row["waits"][0]["since"] > 0
            eventually(lambda: 'locallb_delay_seconds{party="cluster"}' in get(watch, "/metrics")[1], watch)
            assert "locallb_delayed_load_balancers 1.0" in get(watch, "/metrics")[1]
            api.is_writing.set()
            eventually(lambda: "no answer" not in play.run("status").err, watch)
            eventually(lambda: "locallb_delayed_load_balancers 0.0" in get(watch, "/metrics")[1], watch)
            assert "waits" not in play.run("status", "--json").json[0]
            api.is_writing.clear()
            api.services[0]["spec"]["ports"][0]["port"] = 8081
            api.services[0]["metadata"]["resourceVersion"] = "77"
            api.events.append(("MODIFIED", api.services[0]))
            eventually(lambda: "no answer" in play.run("status").err, watch)
            watch.process.kill()
            watch.process.wait()
            assert "no answer" not in play.run("status").err


def test_a_command_gets_its_turn_next_to_a_watch_of_a_cluster_whose_writes_hang(
    play: Stage, backend: Callable[..., Backend], tmp_path: Path
) -> None:
    """What the watch has begun ends before, and nothing more begins; afterwards it goes on."""
    web = backend("web")
    with served(tmp_path) as (api, access):
        play.configure(sources=[source(access)])
        api.nodes = [versioned(node())]
        api.services = [versioned(service(f"web{number}", port(8080, web.port))) for number in range(4)]
        api.is_writing.clear()
        with watching(play) as watch:
            eventually(lambda: "cluster c: no answer for " in play.run("status").err, watch)
            done = play.run("refresh", "--yes")
            assert done.code == 0, done.out + done.err
            api.is_writing.set()
            eventually(lambda: all("status" in each for each in api.services), watch)


def test_an_update_that_fails_is_named_until_it_succeeds(
    play: Stage, backend: Callable[..., Backend], tmp_path: Path
) -> None:
    """With the reason, since when, and when the next attempt begins."""
    web = backend("web")
    with served(tmp_path) as (api, access):
        play.configure(sources=[source(access)])
        api.nodes = [versioned(node())]
        api.services = [versioned(service("web", port(8080, web.port)))]
        api.failing.add("services")
        with watching(play) as watch:
            eventually(lambda: "UpdateFailed" in play.run("status").out, watch)
            assert "has failed to update c/n/web since " in play.run("status").err
            (row,) = play.run("status", "--json").json
            assert row["reason"] == "UpdateFailed"
            assert row["failing"]["retry"] >= row["failing"]["since"] > 0
            assert ", next attempt at " in play.run("status", "web").out
            api.failing.clear()
            eventually(lambda: "UpdateFailed" not in play.run("status").out, watch)
            assert "failing" not in play.run("status", "--json").json[0]
