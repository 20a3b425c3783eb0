"""Backends: what makes two of them equal, and which of several at one place receives connections."""

from __future__ import annotations

from ipaddress import ip_address

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from locallb.envoy import render
from locallb.model.identities import Protocol, ProxyId, ProxyName, UpstreamName
from locallb.model.objects import Discovery
from locallb.model.serving import Backend, HttpCheck, Proxy, Upstream, distinct

ADDRESSES = st.sampled_from([*map(ip_address, ("127.0.0.1", "127.0.0.9", "127.0.0.10", "::1", "::2"))])
BACKENDS = st.builds(Backend.at, ADDRESSES, st.integers(1, 3), st.none() | ADDRESSES, st.sampled_from([0, 10256, None]))


@given(st.lists(BACKENDS), st.lists(BACKENDS, max_size=3))
def test_one_backend_for_each_place_the_first_and_sorted_by_number(
    given: list[Backend], without: list[Backend]
) -> None:
    """10 comes after 9, IPv6 after IPv4; how a backend is checked decides nothing."""
    chosen = distinct(given, without=without)
    assert [backend.place for backend in chosen] == sorted(
        {backend.place for backend in given} - {backend.place for backend in without}
    )
    assert all(next(each for each in given if each.place == backend.place) == backend for backend in chosen)


@given(BACKENDS, BACKENDS)
def test_equal_backends_have_the_same_configuration(one: Backend, other: Backend) -> None:
    """Those at one place that are checked in two ways aren't equal: a memory of what was rendered keeps them apart."""
    other = replace(other, address=one.address, port=one.port)
    assert (one == other) <= (endpoints(one) == endpoints(other))


def endpoints(backend: Backend) -> str:
    """Render the endpoints of an upstream with this backend alone, which kube-proxy's health port answers for."""
    name = UpstreamName("tcp-1-ipv4")
    upstream = Upstream(name, Protocol.TCP, (backend,), health=HttpCheck(10256))
    proxy = Proxy(ProxyName("p"), ProxyId("0" * 12), Discovery.EDS, upstreams=(upstream,))
    return render(proxy).files[f"eds-{name}.json"]
