"""What a preview's report says is what `up` then does: on a stage with real proxies, over random edits."""

from __future__ import annotations

import json
import os
import random
import signal
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from tests.support.backends import Backend
from tests.support.gateway_objects import gateway, gateway_class, listener
from tests.support.manifests import node, port, service
from tests.support.stages import Stage, envoys
from tests.support.watching import eventually

pytestmark = pytest.mark.envoy

TYPES = ("LoadBalancer", "Proxy", "LoopbackAddress", "Reachable", "ProxyConfig", "EnvoyProcess")


def report(play: Stage, *terms: str) -> dict[str, Any]:
    done = play.run("preview", "--format", "json", *terms)
    assert done.err == ""
    document: dict[str, Any] = done.json
    return document


def touched(steps: list[dict[str, Any]]) -> set[str]:
    """Return the Services whose resources a run of `up` changed."""
    names = {step["urn"]: step for step in steps if step["type"].rpartition(":")[2] in TYPES}
    found = {step["name"] for step in names.values() if step["op"] not in {"same", "read", "refresh"}}
    return {"/".join(name.split("/")[:3]) for name in found}


def key(row: dict[str, Any]) -> str:
    return f"{row['cluster']}/{row['namespace']}/{row['name']}"


def deployed(play: Stage) -> dict[str, list[str]]:
    """Return the addresses that the state has, by Service, as its load balancers show them."""
    state = json.loads((play.root / ".state/.pulumi/stacks/local-lb/dev.json").read_text())
    balancers = [r for r in state["checkpoint"]["latest"]["resources"] if r["type"] == "locallb:index:LoadBalancer"]
    return {r["urn"].rpartition("::")[2]: r["inputs"]["addresses"].split(", ") for r in balancers}


def edited(play: Stage, dice: random.Random, backend: Backend) -> list[dict[str, Any]]:
    """Make the manifests of one moment: some of six Services, each in one of several shapes."""
    objects: list[dict[str, Any]] = [node()]
    for name in "abcdef":
        if dice.random() < 0.7:
            more: dict[str, Any] = {}
            if dice.random() < 0.3:
                more["loadBalancerSourceRanges"] = [dice.choice(["127.0.0.0/8", "10.0.0.0/8"])]
            if dice.random() < 0.2:
                more["loadBalancerIP"] = play.at(dice.randint(2, 4))
            if dice.random() < 0.2:
                more["sessionAffinity"] = "ClientIP"
            numbers = dice.sample([8080, 9000, 9443], dice.randint(1, 2))
            protocol = "SCTP" if dice.random() < 0.1 else "TCP"
            objects.append(service(name, *(port(number, backend.port, protocol) for number in numbers), **more))
    return objects


@pytest.mark.parametrize("seed", range(3))
def test_up_changes_exactly_what_the_preview_report_showed(
    play: Stage, backend: Callable[..., Backend], seed: int
) -> None:
    """Over random edits: the Services that `up` touches and the addresses that it gives are those of the report."""
    dice, server = random.Random(seed), backend("one")
    for _ in range(4):
        play.write("all.yaml", *edited(play, dice, server))
        before = play.files()
        reported = report(play)
        assert play.files() == before
        promised = {key(s): s["after"]["addresses"] for s in reported["services"] if s["after"]}
        loud = {key(s) for s in reported["services"] if s["change"] not in {"unchanged", "rejected"}}
        done = play.run("up", "--yes", "--json")
        assert touched(done.json["steps"]) == loud, seed
        assert deployed(play) == promised
        # An address is free for another Service only once it is released: who waited for one gets it at the next run.
        waited = {key(s) for s in reported["services"] if s["problems"]}
        after = {key(s): s["change"] for s in report(play)["services"]}
        assert {change for name, change in after.items() if name not in waited} <= {"unchanged"}
        assert {after[name] for name in waited} <= {"rejected", "added"}


@pytest.fixture
def pair(play: Stage, backend: Callable[..., Backend]) -> Stage:
    """Return a stack of two deployed Services."""
    server = backend("one")
    play.write("a.yaml", node(), service("a", port(8080, server.port), loadBalancerSourceRanges=["127.0.0.0/8"]))
    play.write("b.yaml", service("b", port(8080, server.port)))
    play.up()
    return play


def test_a_killed_proxy_is_reported_as_repaired(pair: Stage) -> None:
    """Nothing is declared differently, but `up` would start it again; after that nothing is to be done."""
    os.kill(pair.pids()["n/a"], signal.SIGKILL)
    reported = {row["name"]: row for row in report(pair)["services"]}
    assert {name: row["change"] for name, row in reported.items()} == {"a": "repaired", "b": "unchanged"}
    (difference,) = reported["a"]["differences"]
    assert difference["what"] == "resources"
    assert any("EnvoyProcess" in text for text in difference["after"])
    pair.up()
    assert not report(pair)["changes"]


def test_removed_source_ranges_stand_above_the_tree(pair: Stage, backend: Callable[..., Backend]) -> None:
    """What was deployed is read back from the state: a reader sees what opens, and a policy can forbid it."""
    pair.write("a.yaml", node(), service("a", port(8080, backend("two").port)))
    sentence = "c/n/a: port 8080/TCP was only for 127.0.0.0/8 and opens for everybody"
    assert sentence in pair.run("preview").out
    pair.configure(policies={"sourceRanges": "required"})
    done = pair.run("preview")
    assert done.code == 11
    assert "c/n/a: port 8080/TCP is open to everybody, which local-lb:policies.sourceRanges forbids" in done.err
    assert "! c/n/a: port 8080/TCP is open to everybody, which local-lb:policies.sourceRanges forbids" in done.out
    assert pair.run("preview", "--json").code == 11
    assert pair.run("preview", "--expect-no-changes").code == 11
    assert pair.run("preview", "--format", "html").code == 11
    assert pair.run("up", "--yes").code == 11


def test_preview_has_a_line_for_what_clients_lose(pair: Stage) -> None:
    """A Service that goes, and clients that may not come any more."""
    (pair.manifests / "b.yaml").unlink()
    a = service("a", port(8080, 30080), loadBalancerSourceRanges=["127.0.0.0/16"])
    pair.write("a.yaml", node(), a)
    shown = pair.run("preview").out
    assert " -  c/n/b  removed, and with it 127." in shown
    assert " ~  c/n/a  port 8080/TCP, allowed clients: 127.0.0.0/8 → 127.0.0.0/16" in shown


def test_a_changed_port_is_a_line_and_its_resources_are_shown_on_request(pair: Stage) -> None:
    """Before and after; Services that stay as they are are only counted."""
    pair.write("a.yaml", node(), service("a", port(8081, 30080)))
    lines = pair.run("preview").out.splitlines()
    assert lines[1:] == [" ~  c/n/a  port 8080/TCP → 8081/TCP", "2 Services: 1 changed, 1 unchanged."]
    assert "ProxyConfig" not in "".join(lines)
    assert (
        "files.lds.json.resources[0].address.socket_address.port_value: 8080 => 8081"
        in pair.run("preview", "--diff").out
    )


def test_a_changed_route_is_a_line(pair: Stage) -> None:
    """As its Gateway serves it, before and after."""

    def route(service: str) -> Mapping[str, object]:
        rules = [{"backendRefs": [{"name": service, "port": 8080}]}]
        spec = {"parentRefs": [{"name": "web"}], "rules": rules}
        metadata = {"name": "r", "namespace": "n"}
        return {"apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute", "metadata": metadata, "spec": spec}

    web = gateway(listener(port=8080), metadata={"namespace": "n"})
    pair.write("g.yaml", gateway_class(), web, route("a"))
    pair.up()
    eventually(lambda: pair.status()["n/web"]["state"] == "serving")
    pair.write("g.yaml", gateway_class(), web, route("b"))
    lines = pair.run("preview").out.splitlines()
    changed = " ~  c/gateways/n/web  route 8080: */*: n/a:8080 → n/b:8080"
    assert lines[1:] == [changed, "3 Services: 1 changed, 2 unchanged."]


def test_a_report_starts_nothing_and_every_format_has_the_services(
    play: Stage, backend: Callable[..., Backend]
) -> None:
    """Before the first `up`."""
    play.write("a.yaml", node(), service("a", port(8080, backend("one").port)))
    for form in ("markdown", "html", "json"):
        done = play.run("preview", "--format", form)
        assert (done.code, done.err) == (0, "")
        assert '"a"' in done.out if form == "json" else ">a<" in done.out or "c/n/a" in done.out
    assert envoys(play.root) == []
