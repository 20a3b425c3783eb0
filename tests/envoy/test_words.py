"""The laws of rendering: determinism, what a change touches, what is left out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from ipaddress import ip_address
from random import Random
from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from locallb.envoy import Rendered, render, watches
from locallb.model.identities import Protocol, ProxyId, ProxyName, UpstreamName
from locallb.model.objects import Discovery
from locallb.model.serving import Backend, ConnectCheck, HttpCheck, Listener, Proxy, Upstream

T = TypeVar("T")
BACKENDS = st.builds(Backend.at, st.ip_addresses(network="127.0.0.0/8") | st.ip_addresses(v=6), st.integers(1, 65535))
UPSTREAMS = st.builds(
    Upstream,
    name=st.from_regex(r"(tcp|udp)-[1-9][0-9]{0,3}-ipv[46]", fullmatch=True),
    protocol=st.sampled_from([Protocol.TCP, Protocol.UDP]),
    backends=st.lists(BACKENDS, max_size=4).map(tuple),
    client_ip_affinity=st.booleans(),
    health=st.sampled_from([None, ConnectCheck(), HttpCheck(10256)]),
)


@st.composite
def proxies(draw: st.DrawFn) -> Proxy:
    """Make any proxy: some upstreams, and a listener for each."""
    upstreams = tuple(draw(st.lists(UPSTREAMS, max_size=4, unique_by=lambda upstream: upstream.name)))
    listeners = tuple(
        Listener(ip_address("127.77.0.5"), 8000 + number, upstream.protocol, upstream.name)
        for number, upstream in enumerate(upstreams)
    )
    return Proxy(
        ProxyName("dev/default/web"), ProxyId("0123456789ab"), draw(st.sampled_from(Discovery)), listeners, upstreams
    )


def _resources(rendered: Rendered, name: str) -> list[Mapping[str, object]]:
    resources: list[Mapping[str, object]] = json.loads(rendered.files[name])["resources"]
    return resources


def _shuffled(things: tuple[T, ...], random: Random) -> tuple[T, ...]:
    return tuple(random.sample(things, len(things)))


@given(proxies(), st.randoms(use_true_random=False))
def test_the_order_in_which_a_proxy_was_put_together_is_invisible(proxy: Proxy, random: Random) -> None:
    """The same listeners, upstreams and backends give the same bytes in any order, doubled or not."""
    upstreams = tuple(
        replace(upstream, backends=_shuffled(upstream.backends, random) + upstream.backends[:1])
        for upstream in proxy.upstreams
    )
    other = replace(proxy, listeners=_shuffled(proxy.listeners, random), upstreams=_shuffled(upstreams, random))
    assert render(other) == render(proxy)


@given(proxies())
def test_files_are_canonical_json(proxy: Proxy) -> None:
    """Every file is compact JSON with sorted keys and one newline at its end."""
    for text in render(proxy).files.values():
        assert text == json.dumps(json.loads(text), sort_keys=True, separators=(",", ":")) + "\n"


@given(proxies())
def test_versions_are_those_in_the_files(proxy: Proxy) -> None:
    """What Envoy will report is what the provider waits for."""
    rendered = render(proxy)
    assert json.loads(rendered.files["lds.json"])["version_info"] == rendered.versions.lds
    assert json.loads(rendered.files["cds.json"])["version_info"] == rendered.versions.cds


@given(proxies(), st.lists(BACKENDS, min_size=1, max_size=3).map(tuple))
def test_backends_change_only_their_eds_file(proxy: Proxy, backends: tuple[Backend, ...]) -> None:
    """With EDS, other backends alter one EDS file and neither version, as long as there are some before and after."""
    populated = tuple(replace(upstream, backends=upstream.backends or backends[:1]) for upstream in proxy.upstreams)
    before = render(replace(proxy, discovery=Discovery.EDS, upstreams=populated))
    for number, upstream in enumerate(populated):
        changed = (*populated[:number], replace(upstream, backends=backends), *populated[number + 1 :])
        after = render(replace(proxy, discovery=Discovery.EDS, upstreams=changed))
        assert after.versions == before.versions
        assert {name for name in after.files if after.files[name] != before.files[name]} <= {
            f"eds-{upstream.name}.json"
        }


@given(proxies())
def test_a_listener_without_backends_is_left_out(proxy: Proxy) -> None:
    """Clients of a port without backends are refused; every other port has its listener."""
    served = {upstream.name for upstream in proxy.upstreams if upstream.backends}
    wanted = {listener.name for listener in proxy.listeners if listener.upstream in served}
    assert {resource["name"] for resource in _resources(render(proxy), "lds.json")} == wanted


def test_a_listener_of_an_unknown_upstream_is_left_out() -> None:
    """A listener that names no upstream of the proxy doesn't reach Envoy, which would accept and cut its clients."""
    listener = Listener(ip_address("127.77.0.5"), 80, Protocol.TCP, UpstreamName("tcp-80-ipv4"))
    assert (
        _resources(render(Proxy(ProxyName("p"), ProxyId("0123456789ab"), Discovery.EDS, (listener,))), "lds.json") == []
    )


@given(proxies())
def test_static_discovery_has_no_eds_files(proxy: Proxy) -> None:
    """A proxy without EDS takes three files and two watches; with EDS one of each more an upstream."""
    count = len(proxy.upstreams)
    for discovery, more in ((Discovery.STATIC, 0), (Discovery.EDS, count)):
        assert len(render(replace(proxy, discovery=discovery)).files) == 3 + more
        assert watches(discovery, count) == 2 + more


@pytest.mark.parametrize("name", ["", "../x", "a/b", "A", "-a", "a-", ".", "a" * 64, "a\n"])
def test_a_name_that_is_no_file_name_is_an_error(name: str) -> None:
    """An upstream's name becomes a file name, so anything but our own kind of name is refused."""
    with pytest.raises(ValueError, match="can't name a file"):
        render(
            Proxy(
                ProxyName("p"),
                ProxyId("0123456789ab"),
                Discovery.EDS,
                (),
                (Upstream(UpstreamName(name), Protocol.TCP, ()),),
            )
        )


def test_a_udp_upstream_is_not_checked_by_tcp_connects() -> None:
    """That a TCP connect to a UDP port is refused says nothing: no check then."""
    upstream = Upstream(UpstreamName("udp-53-ipv4"), Protocol.UDP, (), health=ConnectCheck())
    [cluster] = _resources(
        render(Proxy(ProxyName("p"), ProxyId("0123456789ab"), Discovery.EDS, (), (upstream,))), "cds.json"
    )
    assert "health_checks" not in cluster
