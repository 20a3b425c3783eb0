"""Pools outside 127.0.0.0/8, from `host setup` to traffic: for the host and for a node of a cluster, in namespaces."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.support.host import Namespace, Project, project, requested, served
from tests.support.manifests import port, service

pytestmark = [pytest.mark.envoy, pytest.mark.slow]

POOLS = [{"name": "outer", "addresses": ["172.18.255.224/27", "fd00:ff::e0/123"]}]
LINK = """\
ip link add v0 type veth peer name v1
ip link set v1 netns {pid}
ip address add 172.18.0.1/24 dev v0
ip address add fd00:10::1/64 dev v0 nodad
ip link set v0 up
"""
NODE_LINK = """\
ip address add 172.18.0.2/24 dev v1
ip address add fd00:10::2/64 dev v1 nodad
ip link set v1 up
ip route add default via 172.18.0.1
ip -6 route add default via fd00:10::1
"""
NODE_PORT = 30080


@dataclass(frozen=True)
class World:
    """A host, and a node that reaches it as a kind node does: over a bridge, with the host as its router."""

    host: Project
    node: Namespace


@pytest.fixture
def world() -> Iterator[World]:
    """Return a host with a stack and one node on which an application answers at its NodePort."""
    with project() as host:
        node = Namespace(host.root, "ip link set lo up\n", flags=("-n",), sibling=host.space)
        try:
            host.space.shell(LINK.format(pid=node.pid))
            node.shell(NODE_LINK)
            host.configure(pools=POOLS)
            addresses = [{"type": "InternalIP", "address": address} for address in ("172.18.0.2", "fd00:10::2")]
            host.write(
                "node.yaml",
                {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "status": {"addresses": addresses}},
            )
            with served(node, f"172.18.0.2@{NODE_PORT}", f"fd00:10::2@{NODE_PORT}"):
                yield World(host, node)
        finally:
            node.close()


def write_services(host: Project) -> None:
    """Write one Service of each kind: IPv4, IPv6, both."""
    host.write(
        "services.yaml",
        service("four", port(80, NODE_PORT), ipFamilies=["IPv4"]),
        service("six", port(80, NODE_PORT), ipFamilies=["IPv6"]),
        service("both", port(443, NODE_PORT), ipFamilies=["IPv6", "IPv4"], ipFamilyPolicy="RequireDualStack"),
    )


def test_both_families_are_served_to_the_host_and_to_a_node(world: World) -> None:
    """IPv4, IPv6 and dual-stack Services, by `locallb up` after `host setup --yes`; nothing before it."""
    write_services(world.host)
    before = world.host.up()
    assert {row["reason"] for row in world.host.status().values()} == {"NotOnHost"}
    assert "host setup" in before.out + before.err
    assert world.host.locallb("host", "setup", "--yes").code == 0
    world.host.up()
    rows = world.host.status()
    assert {row["state"] for row in rows.values()} == {"serving"}, rows
    assert len(rows["both"]["addresses"]) == 2
    places = [f"{address}@{row['ports'][0]['port']}" for row in rows.values() for address in row["addresses"]]
    assert len(places) == 4
    assert requested(world.host.space, *places) == [f"hello from {NODE_PORT}"] * 4
    assert requested(world.node, *places) == [f"hello from {NODE_PORT}"] * 4
    assert world.host.locallb("doctor").code == 0


def test_a_route_that_is_gone_is_reported_and_comes_back(world: World) -> None:
    """As after a reboot: `doctor`, `status` and `up` say it, nothing is moved to another address, setup repairs it."""
    write_services(world.host)
    assert world.host.locallb("host", "setup", "--yes").code == 0
    world.host.up()
    at = {name: row["addresses"] for name, row in world.host.status().items()}
    world.host.space.shell("ip route del local 172.18.255.224/27 dev lo")
    doctor = world.host.locallb("doctor")
    assert doctor.code == 1
    assert "172.18.255.224/27" in doctor.out
    assert "host setup --yes" in doctor.out
    rows = world.host.status()
    assert rows["six"]["state"] == "serving"
    assert (rows["four"]["state"], rows["four"]["reason"]) == ("rejected", "NotOnHost")
    assert world.host.locallb("host", "setup", "--yes").code == 0
    world.host.up()
    assert {name: row["addresses"] for name, row in world.host.status().items()} == at
    assert requested(world.node, f"{at['four'][0]}@80") == [f"hello from {NODE_PORT}"]


def test_an_ipv6_pool_in_a_connected_network_is_refused(world: World) -> None:
    """The Service that wants it is told PoolOnLink; the IPv4 one serves."""
    write_services(world.host)
    world.host.configure(pools=[{"name": "outer", "addresses": ["172.18.255.224/27", "fd00:10::e0/123"]}])
    refused = world.host.locallb("host", "setup", "--yes")
    assert refused.code == 1
    assert "PoolOnLink" in refused.err
    world.host.space.shell("ip route add local 172.18.255.224/27 dev lo")
    world.host.up()
    rows = world.host.status()
    assert (rows["six"]["state"], rows["six"]["reason"]) == ("rejected", "PoolOnLink")
    assert "fd00:10::/64" in rows["six"]["message"]
    assert requested(world.node, f"{rows['four']['addresses'][0]}@80") == [f"hello from {NODE_PORT}"]
