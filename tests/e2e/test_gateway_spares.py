"""Gateways that take an Envoy which waits: at once, whole, and with nothing left of it when they go."""

from __future__ import annotations

import json
import os
import random
import signal
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import pytest

from tests.e2e.killing import LONGEST, STARTUP, kill_in_the_middle
from tests.support.certificates import Authority
from tests.support.gateway_clients import address_of, answering, get, service, shown_certificate, tls_secret, web
from tests.support.gateway_objects import JsonObject, backend, gateway, gateway_class, listener, route, rule
from tests.support.manifests import node, port
from tests.support.manifests import service as balancer
from tests.support.stages import Stage, envoys
from tests.support.watching import eventually, watching

pytestmark = pytest.mark.envoy

KILLS = 24
SPARES = [{"mode": "per-service", "spares": 1}, {"mode": "shared", "spares": 1}]


def manifests(play: Stage, *objects: JsonObject) -> None:
    """Write what the Gateways are, and what they lead to."""
    play.write("gateway.yaml", gateway_class(), *objects)


def one_route() -> JsonObject:
    """Make a route to the only backend."""
    return route(rule("/", backends=[backend("one")]))


def told_envoy(play: Stage) -> Mapping[str, Mapping[str, object]]:
    """Return the files of each proxy that make its listeners, routes and backends, by its name."""
    reported = {}
    for owner in (play.state_home / "proxies").glob("*/owner.json"):
        texts = {path.name: json.loads(path.read_text()) for path in owner.parent.glob("*ds*.json")}
        reported[json.loads(owner.read_text())["name"]] = texts
    return reported


@pytest.mark.parametrize("proxies", SPARES, ids=["per-service", "shared"])
def test_a_gateway_takes_a_spare_envoy_and_its_status_is_as_with_its_own(play: Stage, proxies: object) -> None:
    """The same process serves it and another one waits; routes change under it; it goes with its Gateway."""
    with answering("one") as one, answering("two") as two:
        play.write("cluster.yaml", node(), service("one", one), service("two", two))
        manifests(play, web(), one_route())
        play.up()
        own, address = told_envoy(play)["c/gateways/shop/web"], address_of(play)
        manifests(play)
        play.configure(proxies=proxies)
        play.up()
        waiting = play.pids()["/spare-1"]
        manifests(play, web(), one_route())
        assert "c/gateways/shop/web" in play.run("preview").out
        play.up()
        assert address_of(play) == address
        assert get(address) == (200, "one / -")
        assert play.pids()["/spare-1"] == waiting
        assert "/spare-2" in play.pids()
        assert told_envoy(play)["spare-1"] == own
        for form in ("tree", "json"):
            assert play.run("preview", "--expect-no-changes", "--format", form).code == 0
        assert play.run("up", "--yes", "--expect-no-changes").code == 0
        manifests(play, web(), route(rule("/", backends=[backend("two")])))
        play.up()
        assert get(address) == (200, "two / -")
        assert play.pids()["/spare-1"] == waiting
        manifests(play)
        play.up()
        assert "/spare-1" not in play.pids()
        assert "/spare-2" in play.pids()
        with pytest.raises(ConnectionRefusedError):
            get(address)
    assert play.run("destroy", "--yes").code == 0
    assert envoys(play.root) == []


def test_certificates_reach_an_envoy_that_waited(play: Stage, tmp_path: Path) -> None:
    """They lie in its directory when its first listener refers to them, and a new one follows."""
    authority = Authority(tmp_path / "authority")
    https = listener("https", 8443, "HTTPS", hostname="a.test", tls={"certificateRefs": [{"name": "cert"}]})
    play.configure(proxies=SPARES[0])
    with answering("one") as one:
        play.write("cluster.yaml", node(), service("one", one))
        play.up()
        waiting = play.pids()["/spare-1"]
        manifests(play, gateway(https), one_route())
        play.write("secret.yaml", tls_secret(authority.sign("DNS:a.test")))
        play.up()
        first = shown_certificate(address_of(play), authority)
        play.write("secret.yaml", tls_secret(authority.sign("DNS:a.test")))
        play.up()
        assert shown_certificate(address_of(play), authority)[0] != first[0]
        assert play.pids()["/spare-1"] == waiting
        manifests(play)
        play.up()
    assert play.run("destroy", "--yes").code == 0
    assert list((play.state_home / "proxies").iterdir()) == []


def test_a_watched_gateway_starts_no_envoy_while_one_waits(play: Stage) -> None:
    """It is served by the process that was there; the next one starts behind it; a killed one comes back."""
    play.configure(proxies=SPARES[0])

    def runs(name: str) -> bool:
        return name in play.pids()

    with answering("one") as one, watching(play) as watch:
        play.write("cluster.yaml", node(), service("one", one))
        eventually(partial(runs, "/spare-1"), watch)
        waiting = play.pids()["/spare-1"]
        manifests(play, web(), one_route())
        eventually(lambda: play.run("status", "--json").json[0]["state"] == "serving", watch)
        address = address_of(play)
        assert get(address) == (200, "one / -")
        eventually(lambda: "updated spare-2" in watch.reported(), watch)
        assert watch.reported().index("updated c/gateways/shop/web") < watch.reported().index("updated spare-2")
        assert play.pids()["/spare-1"] == waiting
        assert set(play.pids()) == {"/spare-1", "/spare-2"}
        os.kill(waiting, signal.SIGKILL)
        eventually(lambda: play.pids().get("/spare-1", waiting) != waiting, watch)
        eventually(lambda: get(address) == (200, "one / -"), watch)


def test_a_loop_takes_over_a_gateway_that_took_a_spare(play: Stage) -> None:
    """It leaves the process alone, and ends it when the Gateway goes; nobody else's is touched."""
    play.configure(proxies=SPARES[0])
    with answering("one") as one:
        play.write("cluster.yaml", node(), service("one", one))
        play.up()
        manifests(play, web(), one_route())
        play.up()
        address, before = address_of(play), play.pids()
        with watching(play) as watch:
            eventually(lambda: "converged" in watch.reported(), watch)
            assert play.pids() == before
            assert get(address) == (200, "one / -")
            manifests(play)
            eventually(lambda: play.pids() == {"/spare-2": before["/spare-2"]}, watch)
        assert "Traceback" not in watch.reported()
    with pytest.raises(ConnectionRefusedError):
        get(address)


@pytest.mark.slow
def test_after_a_kill_one_more_run_converges(play: Stage) -> None:
    """Kills of `up` while Gateways and Services take spares and go: one run later all is as planned, nothing left."""
    seed = random.SystemRandom().randrange(2**32)
    moment = random.Random(seed)
    play.configure(proxies=SPARES[0])
    with answering("one") as one:
        for number in range(KILLS):
            wanted = (("web",), ("plain",), ("plain", "web"), ())[number % 4]
            plain = balancer("plain", port(8081, one))
            play.write("cluster.yaml", node(), service("one", one), *([plain] if "plain" in wanted else []))
            manifests(play, *([web(), one_route()] if "web" in wanted else []))
            kill_in_the_middle(play, "up", moment.uniform(STARTUP, LONGEST))
            done = play.run("up", "--yes")
            reported = f"seed {seed}, kill {number}: {done.out}{done.err}"
            assert done.code == 0, reported
            at = {row["name"]: str(row["addresses"][0]) for row in play.run("status", "--json").json}
            assert set(at) == set(wanted), reported
            for name, address in at.items():
                assert get(address, port=8080 if name == "web" else 8081)[0] == 200, reported
            assert len(envoys(play.root)) == len(wanted) + 1, reported
            assert [remaining for remaining in play.run("gc", "--json").json if remaining["ours"]] == [], reported
            assert play.run("preview", "--expect-no-changes").code == 0, reported
        assert play.run("destroy", "--yes").code == 0
    assert envoys(play.root) == []
    assert list((play.state_home / "ledger").iterdir()) == []
