"""Ingresses of a running cluster, served by a real Envoy: its API is imitated, what it means is the cluster tier's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.certificates import Authority
from tests.support.fake_api import Api, served, source, versioned
from tests.support.gateway_clients import Client, address_of, answering, get, service, tls_secret
from tests.support.ingress_objects import JsonObject, ingress, ingress_class, path, rule, shown
from tests.support.manifests import node
from tests.support.stages import Stage
from tests.support.watching import eventually, watching

pytestmark = pytest.mark.envoy

PORTS = [{"port": port, "protocol": "TCP"} for port in (8080, 8443)]


@pytest.fixture
def api(play: Stage, tmp_path: Path) -> Iterator[Api]:
    """Serve an API that is the stack's only source; Ingresses are served from ports that everybody may bind."""
    (tmp_path / "api").mkdir()
    with served(tmp_path / "api") as (answers, access):
        play.configure(sources=[source(access)], ingress={"class": "local", "http": 8080, "https": 8443})
        answers.nodes = [versioned(node())]
        yield answers


def has(answers: Api, *ingresses: JsonObject) -> None:
    """Have a class of ours, and these."""
    answers.others = {
        "ingressclasses": [versioned(ingress_class())],
        "ingresses": [versioned(one) for one in ingresses],
    }


def leading(to: str, **fields: Any) -> JsonObject:  # noqa: ANN401 - fields of an Ingress
    return ingress(rule(path(to=to), host="a.test"), **fields)


def reported(answers: Api, name: str = "web") -> object:
    """Return what an Ingress was told last."""
    patches = [patch for plural, of, patch in answers.patched if (plural, of) == ("ingresses", name)]
    return patches[-1]["status"]["loadBalancer"]["ingress"] if patches else None


def events(answers: Api, name: str = "web") -> list[tuple[str, str]]:
    """Return reasons and notes of what an Ingress was told in passing."""
    regarding = {"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "namespace": "shop", "name": name, "uid": ""}
    return [
        (str(event["reason"]), str(event["note"]))
        for event in answers.reported
        if {**event["regarding"], "uid": ""} == regarding
    ]


def test_an_ingress_gets_events_of_what_is_served_and_what_is_not(play: Stage, api: Api) -> None:
    """Each once; a change is an update, who is served no longer hears so, who never was hears why."""
    with answering("one") as one:
        api.services = [versioned(service("one", one))]
        broken = ingress(name="broken", metadata={"creationTimestamp": "2026-01-02T00:00:00Z"})
        web = leading("one")
        web["spec"]["rules"].append(rule(path(to="gone"), host="b.test"))
        has(api, web, broken)
        play.up()
        at = address_of(play)
        removed = ("SyncLoadBalancerFailed", "Service shop/gone isn't there; make it, or correct the backend")
        served = [("EnsuredLoadBalancer", f"serves a.test, b.test on 8080 at {at}"), removed]
        why = "spec has neither rules nor defaultBackend; give it one of both"
        assert events(api) == served
        assert events(api, "broken") == [("UnsupportedValue", why)]
        play.up()
        assert events(api) == served
        has(api, leading("one"), broken)
        play.up()
        served.append(("UpdatedLoadBalancer", f"serves a.test on 8080 at {at}"))
        assert events(api) == served
        has(api, broken)
        play.up()
        assert events(api) == [*served, ("DeletingLoadBalancer", "is served no longer")]
    assert len(events(api, "broken")) == 1


def test_an_ingress_without_an_address_gets_the_reason(play: Stage, api: Api) -> None:
    """There is none for its namespace."""
    config = yaml.safe_load((play.root / "stacks" / "Pulumi.dev.yaml").read_text())["config"]
    pool = {"name": "other", "addresses": [f"{play.at(0)}/27"], "namespaces": ["other"]}
    play.configure(**{key.removeprefix("local-lb:"): value for key, value in config.items()} | {"pools": [pool]})
    has(api, leading("one"))
    play.up()
    (reason, note), (_, lost) = events(api)
    assert (reason, "pool" in note) == ("SyncLoadBalancerFailed", True)
    assert "Service shop/one isn't there" in lost


def test_up_serves_an_ingress_of_a_cluster_with_its_certificate(play: Stage, api: Api, tmp_path: Path) -> None:
    """It is told of its address, and of its end; rights that go leave it served; nothing of a key is kept."""
    authority = Authority(tmp_path / "authority")
    pair = authority.sign("DNS:a.test")
    with answering("one") as one:
        api.services = [versioned(service("one", one))]
        has(api, leading("one", tls=[{"hosts": ["a.test"], "secretName": "cert"}]))
        api.secrets = {"shop/secrets/cert": tls_secret(pair)}
        play.up()
        at = address_of(play)
        assert shown(at, authority, "a.test")[1] == "200 one"
        assert reported(api) == [{"ip": at, "ports": PORTS}]
        written = b"".join(text for name, text in play.files().items() if name.startswith(".state"))
        assert pair.key.read_bytes().splitlines()[1] not in written
        api.refused = {"ingressclasses", "ingresses"}
        done = play.up()
        assert "deploy/rbac-ingresses.yaml" in done.out + done.err
        assert shown(at, authority, "a.test")[1] == "200 one"
        api.refused = set()
        api.others["ingressclasses"] = []
        play.up()
        assert reported(api) == []
    assert play.run("status", "--json").json == []
    assert not play.pids()


def test_watch_follows_ingresses_of_a_cluster_and_costs_no_request(play: Stage, api: Api) -> None:
    """One leads elsewhere by an event; a second one comes to the same address; the last one goes."""
    with answering("one") as one, answering("two") as two:
        api.services = [versioned(service("one", one)), versioned(service("two", two))]
        has(api, leading("one"))
        second = versioned(ingress(rule(path("/b", to="one")), name="second"), "3")
        with watching(play) as watch:
            eventually(lambda: [row["state"] for row in play.run("status", "--json").json] == ["serving"], watch)
            at = address_of(play)
            eventually(lambda: get(at) == (200, "one / -"), watch)
            with Client(at) as client:
                api.other_events["ingresses"] = [("MODIFIED", versioned(leading("two"), "2"))]
                eventually(lambda: client.answers[-1:] == ["200 two"], watch)
                api.others["ingresses"].append(second)
                api.other_events["ingresses"].append(("ADDED", second))
                eventually(lambda: get(at, "/b", "b.test")[1].startswith("one"), watch)
                eventually(lambda: reported(api, "second") == [{"ip": at, "ports": PORTS[:1]}], watch)
            assert set(client.answers) == {"200 one", "200 two"}
            api.others["ingresses"] = []
            for each in (leading("two"), ingress(name="second")):
                api.other_events["ingresses"].append(("DELETED", versioned(each, "9")))
            eventually(lambda: play.run("status", "--json").json == [], watch)


def test_a_cluster_that_gives_no_right_to_ingresses_is_asked_for_none(play: Stage, api: Api) -> None:
    """One question that anybody may ask; nothing is refused, nothing is told."""
    play.up()
    assert not [each for each in api.paths if "ingress" in each]
