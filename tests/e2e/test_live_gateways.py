"""Gateways of a running cluster, served by a real Envoy: its API is imitated, what it means is the cluster tier's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from locallb.gateway.kinds import KINDS
from tests.support.certificates import Authority
from tests.support.fake_api import Api, served, source, versioned
from tests.support.gateway_clients import (
    Client,
    address_of,
    answering,
    get,
    service,
    shown_certificate,
    tls_secret,
    web,
)
from tests.support.gateway_objects import JsonObject, backend, gateway, gateway_class, listener, route, rule
from tests.support.manifests import node
from tests.support.stages import Stage
from tests.support.watching import eventually, watching

pytestmark = pytest.mark.envoy


@pytest.fixture
def api(play: Stage, tmp_path: Path) -> Iterator[Api]:
    """Serve an API that is the stack's only source."""
    (tmp_path / "api").mkdir()
    with served(tmp_path / "api") as (answers, access):
        play.configure(sources=[source(access)])
        answers.nodes = [versioned(node())]
        yield answers


def has(answers: Api, gateway: JsonObject, *routes: JsonObject) -> None:
    """Have the cluster serve all kinds, and have these."""
    answers.others = {
        **{kind.plural: [] for kind in KINDS.values()},
        "gatewayclasses": [versioned(gateway_class())],
        "gateways": [versioned(gateway)],
        "httproutes": [versioned(one) for one in routes],
        "namespaces": [],
    }


def leading(to: str) -> JsonObject:
    return route(rule("/", backends=[backend(to)]), hostnames=["a.test"])


def test_up_serves_a_gateway_of_a_cluster_with_its_certificate(play: Stage, api: Api, tmp_path: Path) -> None:
    """It is told of its address; nothing of the key is in the state or the last good reading."""
    authority = Authority(tmp_path / "authority")
    pair = authority.sign("DNS:a.test")
    https = listener("https", 8443, "HTTPS", hostname="a.test", tls={"certificateRefs": [{"name": "cert"}]})
    with answering("one") as one:
        api.services = [versioned(service("one", one))]
        has(api, gateway(https), leading("one"))
        api.secrets = {"shop/secrets/cert": tls_secret(pair)}
        play.up()
        assert shown_certificate(address_of(play), authority)[1] == "one / -"
        reported = [patch["status"]["addresses"] for plural, _, patch in api.patched if plural == "gateways"]
        assert [each["value"] for each in reported[-1]] == [address_of(play)]
        written = b"".join(text for name, text in play.files().items() if name.startswith(".state"))
        assert pair.key.read_bytes().splitlines()[1] not in written
        api.refused = {"gatewayclasses"}
        done = play.up()
        assert "deploy/rbac-gateways.yaml" in done.out + done.err
        assert shown_certificate(address_of(play), authority)[1] == "one / -"
        api.refused = set()
        api.others.clear()
        play.up()
    assert play.run("status", "--json").json == []
    assert not play.pids()


def test_watch_follows_a_gateway_of_a_cluster_and_costs_no_request(play: Stage, api: Api) -> None:
    """Its route leads elsewhere by an event, and to another port of a Service that is no load balancer's."""
    with answering("one") as one, answering("two") as two:
        api.services = [versioned(service("one", one)), versioned(service("two", two))]
        has(api, web(), leading("one"))
        with watching(play) as watch:
            eventually(lambda: [row["state"] for row in play.run("status", "--json").json] == ["serving"], watch)
            eventually(lambda: get(address_of(play)) == (200, "one / -"), watch)
            with Client(address_of(play)) as client:
                api.other_events["httproutes"] = [("MODIFIED", versioned(leading("two"), "2"))]
                eventually(lambda: client.answers[-1:] == ["200 two"], watch)
                api.events.append(("MODIFIED", versioned(service("two", one), "3")))
                eventually(lambda: client.answers[-1:] == ["200 one"], watch)
            assert set(client.answers) == {"200 one", "200 two"}
