"""Containers whose ports Docker, or Podman, publishes at 127.0.0.1 (`network: publish`, `portMapping: loopback`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from locallb.planning.port_mapping import COUNT, FIRST
from tests.support.backends import Backend, ask
from tests.support.containers import Network, containers, identities, word
from tests.support.manifests import node, port, service
from tests.support.stages import Stage, stage

pytestmark = [pytest.mark.docker, pytest.mark.envoy]
LOCALHOST = "127.0.0.1"


@pytest.fixture
def shop(image: str, network: Network) -> Iterator[Stage]:
    """Return a stack on a Docker network, without Services."""
    with stage() as play:
        play.configure(runtime=word(), image=image, network={"publish": network.name}, portMapping="loopback")
        play.write("nodes.yaml", node(address=network.gateway))
        yield play


def test_an_engine_publishes_a_free_port_by_its_own_number_and_a_taken_one_by_another(
    shop: Stage, network: Network, backend: Callable[..., Backend]
) -> None:
    """Requests arrive at either; nothing is made again by a second run."""
    web, dns = backend("web", network.gateway), backend("dns", network.gateway)
    stranger = backend("stranger")
    vacant = backend("vacant")
    vacant.close()
    shop.write("web.yaml", service("web", port(vacant.port, web.port)))
    shop.write("dns.yaml", service("dns", port(stranger.port, dns.port), port(stranger.port, dns.port, "UDP")))
    shop.up()
    numbers = {key: [port["mapped"] for port in row["ports"]] for key, row in shop.status().items()}
    assert numbers["n/web"] == [vacant.port]
    assert all(FIRST <= number < FIRST + COUNT for number in numbers["n/dns"])
    tcp, udp = numbers["n/dns"]
    assert ask(LOCALHOST, vacant.port) == "web: hello"
    assert ask(LOCALHOST, tcp) == ask(LOCALHOST, udp, "UDP") == "dns: hello"
    assert ask(LOCALHOST, stranger.port) == "stranger: hello"
    published = containers(shop)["dns"]["NetworkSettings"]["Ports"]
    assert published[f"{tcp}/tcp"] == [{"HostIp": LOCALHOST, "HostPort": str(tcp)}]
    before = identities(shop)
    assert shop.run("up", "--yes", "--expect-no-changes").code == 0
    assert shop.run("refresh", "--yes", "--expect-no-changes").code == 0
    stranger.close()
    assert shop.run("up", "--yes", "--expect-no-changes").code == 0
    assert identities(shop) == before
    assert {row["state"] for row in shop.status().values()} == {"serving"}
    assert shop.run("destroy", "--yes").code == 0
    assert containers(shop) == {}
