"""Gateways and Ingresses under the official Pulumi CLI and `locallb` by turns."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from unittest.mock import patch

import pytest

from tests.e2e.https_gateways import https
from tests.support.gateway_clients import answering, service
from tests.support.gateway_objects import backend, gateway, gateway_class, listener, route, rule
from tests.support.http_traffic import Client
from tests.support.ingress_objects import ingress, path
from tests.support.ingress_objects import rule as ingress_rule
from tests.support.manifests import node
from tests.support.official_cli import bring, content, make_runnable, make_stack, needs_cli, update
from tests.support.stages import Stage, envoys

pytestmark = [
    pytest.mark.envoy,
    pytest.mark.pulumi,
    needs_cli,
]


@pytest.fixture
def both(play: Stage) -> Iterator[Stage]:
    """Return a project that the CLI can run as well, whose user has an authority."""
    with patch.dict(os.environ, XDG_DATA_HOME=str(play.root / "d")):
        make_runnable(play.root)
        play.configure(certificates="local", ingress={"class": "local"})
        yield play


def routed(both: Stage, *hostnames: str, to: str = "one") -> None:
    """Write a Gateway with a port of HTTP and one of HTTPS, and its route."""
    made = gateway(listener(port=8080), https(hostname="a.test"), addresses=[{"value": both.at(9)}])
    both.write("g.yaml", gateway_class(), made, route(rule("/", backends=[backend(to)]), hostnames=list(hostnames)))


def host_of_ingress(both: Stage, host: str) -> None:
    both.write("i.yaml", ingress(ingress_rule(path("/", to="two"), host=host)))


def address_of(both: Stage, kind: str) -> str:
    """Return the address of the only object of a kind; empty where there is none."""
    rows = both.run("status", "--json").json
    return next((str(row["addresses"][0]) for row in rows if row["kind"] == kind), "")


def requested(address: str, port: int, host: str) -> tuple[int, str]:
    """Ask for a host; return the status and who answered."""
    with closing(Client(address, port)) as client:
        answer = client.ask(host=host)
        return answer.status, answer.body.partition(" ")[0]


def test_gateways_and_ingresses_are_the_same_by_either(both: Stage) -> None:
    """Made by one, changed by the other; after each change neither finds anything to do, and no proxy is made again."""
    with answering("one") as one, answering("two") as two:
        both.write("s.yaml", node(), service("one", one), service("two", two))
        routed(both, "a.test")
        host_of_ingress(both, "i.test")
        make_stack(both)
        update(both, "up")
        content(both)
        at_ingress = address_of(both, "ingressclasses")
        pids = both.pids()
        assert requested(both.at(9), 8080, "a.test") == (200, "one")
        assert requested(at_ingress, 80, "i.test") == (200, "two")
        for by, host, to in (("locallb", "b.test", "two"), ("pulumi", "c.test", "one")):
            routed(both, "a.test", host, to=to)
            host_of_ingress(both, f"i.{host}")
            bring(both, by)
            content(both)
            assert requested(both.at(9), 8080, host) == (200, to)
            assert requested(at_ingress, 80, f"i.{host}") == (200, "two")
            assert both.pids() == pids
        (both.manifests / "g.yaml").unlink()
        bring(both, "pulumi")
        content(both)
        assert address_of(both, "gateways") == ""
        routed(both, "a.test")
        bring(both, "locallb")
        content(both)
        update(both, "refresh")
        content(both)
        update(both, "destroy")
        assert envoys(both.root) == []
