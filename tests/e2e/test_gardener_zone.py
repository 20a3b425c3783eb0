"""The names of examples/gardener in a real BIND 9 with Gardener's zone, beside what Gardener writes there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import dns.query
import dns.update
import pytest
import yaml

from tests.support.backends import Backend
from tests.support.bind import Bind, bind
from tests.support.manifests import node, port, service
from tests.support.stages import Stage

pytestmark = pytest.mark.envoy
ZONE = "local.gardener.cloud"
EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "gardener" / "Pulumi.gardener.yaml"
STATIC = """$TTL 30
@ SOA ns.local.gardener.cloud. root.local.gardener.cloud. 1 60 60 60 1
@ NS ns
ns A 172.18.255.53
registry NS docker-dns
registry-cache NS docker-dns
docker-dns A 127.0.0.11
api.root.garden.external A 172.18.255.123
"""
"""What the zone has from the beginning, laid out as Gardener's local setup has it."""
API = f"api.a.local.external.{ZONE}"
HOSTNAME = "external-dns.alpha.kubernetes.io/hostname"
LB = f"lb.{ZONE}"


@pytest.fixture
def server() -> Iterator[Bind]:
    """Run a server that takes updates from everybody."""
    with bind(zone=ZONE, text=STATIC) as running:
        yield running


def gardener_writes(server: Bind, name: str, kind: str, *values: str) -> None:
    """Send what its DNSRecord controller sends: the set is deleted and added, unsigned and unasked."""
    message = dns.update.UpdateMessage(f"{ZONE}.")
    message.delete(f"{name}.", kind)
    for value in values:
        message.add(f"{name}.", 120, kind, value)
    assert dns.query.udp(message, "127.0.0.1", 5, server.port).rcode() == 0


def configured(play: Stage, server: Bind) -> None:
    """Take the key `dns` of the example, with the server of this test."""
    reported = yaml.safe_load(EXAMPLE.read_text())["config"]["local-lb:dns"]
    (zone,) = reported["zones"]
    assert zone == {"zone": ZONE, "rfc2136": {"server": "172.18.255.53:53"}}
    zone["rfc2136"]["server"] = f"127.0.0.1:{server.port}"
    play.configure(dns=reported, sources=[{"manifests": "manifests", "name": "seed"}])


def gateway(namespace: str, to: int, **annotations: str) -> dict[str, object]:
    """Make the Service of an istio gateway."""
    made = service("istio-ingressgateway", port(8443, to), **annotations)
    return {**made, "metadata": {**made["metadata"], "namespace": namespace}}


def test_gateways_of_zones_have_names_beside_what_gardener_writes(
    play: Stage, backend: Callable[..., Backend], server: Bind
) -> None:
    """Which goes on changing its own; neither touches what is the other's, and destroy leaves what was there."""
    to = backend("api").port
    gardener_writes(server, API, "A", "172.18.255.224")
    gardener_writes(server, f"*.ingress.local.seed.{ZONE}", "A", "172.18.255.224")
    before = server.records()
    configured(play, server)
    namespaces = ["istio-ingress", *(f"istio-ingress--{zone}" for zone in range(3)), "virtual-garden-istio-ingress"]
    play.write("all.yaml", node(), *(gateway(namespace, to) for namespace in namespaces))
    play.up()
    at, names = play.addresses(), {each: f"istio-ingressgateway.{each}.seed.{LB}" for each in namespaces}
    records = server.records()
    for namespace, name in names.items():
        assert records[name] == {f"A {at[f'{namespace}/istio-ingressgateway']}"}
    assert {name: values for name, values in records.items() if not name.endswith(LB)} == before
    gardener_writes(server, API, "A", "172.18.255.225")
    gardener_writes(server, f"api.b.local.internal.{ZONE}", "CNAME", f"{names['istio-ingress--1']}.")
    theirs = {name: values for name, values in server.records().items() if not name.endswith(LB)}
    play.write("all.yaml", node(), *(gateway(namespace, to) for namespace in namespaces[1:]))
    play.up()
    assert names["istio-ingress"] not in server.records()
    assert names["istio-ingress--0"] in server.records()
    assert play.run("destroy", "--yes").code == 0
    assert server.records() == theirs


@pytest.mark.parametrize("name", [API, f"api.root.garden.external.{ZONE}", f"registry.{ZONE}"])
def test_a_name_of_gardeners_is_refused(play: Stage, backend: Callable[..., Backend], server: Bind, name: str) -> None:
    """In a sentence; the gateway is served, and the record stays."""
    gardener_writes(server, API, "A", "172.18.255.224")
    before = server.records()
    configured(play, server)
    play.write("all.yaml", node(), gateway("istio-ingress", backend("api").port, annotations={HOSTNAME: name}))  # type: ignore[arg-type]
    done = play.run("up", "--yes")
    assert done.code != 0
    assert f"{name} isn't this stack's to change" in done.out + done.err
    assert {key: values for key, values in server.records().items() if not key.endswith(LB)} == before
    assert play.status()["istio-ingress/istio-ingressgateway"]["state"] == "serving"
