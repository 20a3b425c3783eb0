"""A running cluster leads no traffic to this host itself, nor to nothing; its source may say that it is on loopback."""

from __future__ import annotations

import json
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from locallb.config.parsing import parse_settings
from locallb.kubernetes.object_parsing import Parsed, parse_objects, refusal, with_backends_of_cluster
from locallb.model.identities import ClusterName
from locallb.sources.entries import KubernetesSource, ManifestsSource
from locallb.sources.kubernetes.reading import read_kubernetes
from locallb.sources.manifests import read_manifests
from tests.support.fake_api import NAME, balancer, served
from tests.support.objects import endpoint, endpoints, node, service
from tests.support.waiting import becomes

C = ClusterName("c")
REFUSED = {
    "0.0.0.1": "unspecified",
    "::ffff:0.1.2.3": "unspecified",
    "255.255.255.255": "broadcast",
    "::127.0.0.1": "IPv4-compatible",
    "::172.18.0.2": "IPv4-compatible",
    "fd00:ec2::254": "metadata",
    "100.100.100.200": "metadata",
    "168.63.129.16": "metadata",
    "::ffff:168.63.129.16": "metadata",
    "127.0.0.1": "loopback",
    "127.0.0.53": "loopback",
    "::1": "loopback",
    "::ffff:127.0.0.1": "loopback",
    "169.254.169.254": "link-local",
    "::ffff:169.254.169.254": "link-local",
    "fe80::1": "link-local",
    "0.0.0.0": "unspecified",
    "::": "unspecified",
    "::ffff:0.0.0.0": "unspecified",
    "224.0.0.1": "multicast",
    "ff02::1": "multicast",
}
ALLOWED = [
    "10.0.0.1",
    "172.18.0.2",
    "192.168.1.4",
    "100.64.0.1",
    "8.8.8.8",
    "fd00::1",
    "2001:db8::1",
    "::ffff:10.0.0.1",
]


@pytest.mark.parametrize(("address", "kind"), REFUSED.items())
def test_an_address_that_leads_to_this_host_or_nowhere_is_refused(address: str, kind: str) -> None:
    """Only loopback may be allowed."""
    assert refusal(ip_address(address), loopback=False) == kind
    assert refusal(ip_address(address), loopback=True) == ("" if kind == "loopback" else kind)


@pytest.mark.parametrize("address", ALLOWED)
def test_addresses_of_networks_are_backends(address: str) -> None:
    """Private ones and public ones."""
    assert refusal(ip_address(address), loopback=False) == ""


def live(*documents: dict[str, Any], loopback: bool = False) -> Parsed:
    """Read objects as those of a running cluster."""
    return with_backends_of_cluster(C, parse_objects(C, documents), loopback=loopback)


@pytest.mark.parametrize("address", ["127.0.0.1", "169.254.169.254", "fe80::1"])
def test_nodes_and_endpoints_keep_their_other_addresses(address: str) -> None:
    """What is left out is told, by object and address."""
    family = "IPv6" if ":" in address else "IPv4"
    other = "fd00::7" if ":" in address else "10.0.0.7"
    bad = {**endpoint(), "addresses": [address]}
    good = {**endpoint(), "addresses": [other]}
    parsed = live(node("a", address, other), {**endpoints(bad, good), "addressType": family})
    assert parsed.nodes[0].addresses == (ip_address(other),)
    assert [found.addresses for found in parsed.slices[0].endpoints] == [(ip_address(other),)]
    about_node, about_endpoint = parsed.notices
    assert about_node.startswith(f"c: Node a has the {REFUSED[address]} address {address}, which isn't used")
    assert about_endpoint.startswith(f"c: an endpoint of shop/web has the {REFUSED[address]} address {address}, which")
    assert ("loopbackBackends: true" in about_node) == (REFUSED[address] == "loopback")


@given(st.lists(st.ip_addresses(), max_size=4, unique=True))
def test_nothing_but_addresses_is_left_out(addresses: list[Any]) -> None:
    """Objects without such addresses are the very same."""
    parsed = parse_objects(C, [service(), node("a", *map(str, addresses))])
    retained = with_backends_of_cluster(C, parsed, loopback=False)
    assert retained.services is parsed.services
    assert retained.nodes[0].addresses == tuple(
        each for each in parsed.nodes[0].addresses if not refusal(each, loopback=False)
    )
    assert (retained is parsed) == (retained.nodes[0].addresses == parsed.nodes[0].addresses)


@pytest.mark.parametrize("loopback", [False, True])
def test_an_api_may_have_loopback_nodes_only_where_its_source_says_so(tmp_path: Path, loopback: bool) -> None:  # noqa: FBT001 - a parameter of the test
    """As read once, and from its last good reading."""
    with served(tmp_path) as (api, access):
        api.nodes = [
            {"metadata": {"name": "a", "resourceVersion": "1"}, **_status("127.0.0.1", "169.254.0.1", "10.0.0.9")}
        ]
        api.services = [balancer("web")]
        source = KubernetesSource(NAME, kubeconfig=access.kubeconfig, loopback_backends=loopback)
        wanted = ["127.0.0.1", "10.0.0.9"] if loopback else ["10.0.0.9"]
        for _ in range(2):
            parsed = read_kubernetes(source, tmp_path, tmp_path / "readings", keep=True).reading.parsed
            assert [str(address) for address in parsed.nodes[0].addresses] == wanted
            api.listed = (500, b"")


def test_what_is_followed_is_judged_likewise(tmp_path: Path) -> None:
    """By `watch`."""
    from locallb.sources.kubernetes.followed_cluster import FollowedCluster  # noqa: PLC0415

    with served(tmp_path) as (api, access):
        api.nodes = [{"metadata": {"name": "a", "resourceVersion": "1"}, **_status("127.0.0.1", "10.0.0.9")}]
        followed = FollowedCluster(NAME, access, lambda: None)
        try:
            becomes(followed.ready, followed.stale)
            parsed = followed.parsed()
        finally:
            followed.stop()
        assert [str(address) for address in parsed.nodes[0].addresses] == ["10.0.0.9"]
        assert any("127.0.0.1" in notice for notice in parsed.notices)


def test_manifests_may_name_any_address(tmp_path: Path) -> None:
    """Who writes them can write to this host."""
    (tmp_path / "n.json").write_text(json.dumps(node("a", "127.0.0.1")))
    parsed = read_manifests(ManifestsSource(C, "."), tmp_path, tmp_path / "readings").parsed
    assert [str(address) for address in parsed.nodes[0].addresses] == ["127.0.0.1"]
    assert parsed.notices == ()


@pytest.mark.parametrize(
    "entry", [{"kubernetes": {"name": "c", "loopbackBackends": True}}, {"kind": "all", "loopbackBackends": True}]
)
def test_a_source_says_so_in_the_configuration(entry: dict[str, Any]) -> None:
    """Off unless it is on."""
    settings = parse_settings({"sources": [entry]})
    found: list[Any] = [*settings.sources, *settings.finders]
    assert [source.loopback_backends for source in found] == [True]


def _status(*addresses: str) -> dict[str, Any]:
    return {"status": {"addresses": [{"type": "InternalIP", "address": address} for address in addresses]}}
