"""Backends: what makes two of them equal, and which of several at one place receives connections."""

from __future__ import annotations

from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from locallb.envoy import render
from locallb.envoy.clusters import cluster
from locallb.model.fields import objects_of
from locallb.model.identities import Protocol, ProxyId, ProxyName, UpstreamName
from locallb.model.objects import Discovery
from locallb.model.serving import (
    CHECK_INTERVAL,
    Backend,
    ConnectCheck,
    HttpCheck,
    Proxy,
    Upstream,
    distinct,
    with_bounded_checks,
)

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


UPSTREAMS = st.builds(
    lambda number, standby, health: Upstream(
        UpstreamName(f"tcp-{number}"),
        Protocol.TCP,
        tuple(Backend(ip_address("127.0.0.1"), 1 + port) for port in range(number)),
        health=health,
        standby=tuple(Backend(ip_address("127.0.0.2"), 1 + port) for port in range(standby)),
    ),
    st.integers(0, 300),
    st.integers(0, 20),
    st.sampled_from([None, ConnectCheck(), HttpCheck(1)]),
)


@given(st.lists(UPSTREAMS, max_size=8))
def test_a_load_balancer_makes_at_most_400_health_checks_a_second(upstreams: list[Upstream]) -> None:
    """Up to 200 backends are checked twice a second, and however many there are at least 200 checks are made."""
    bounded = with_bounded_checks(tuple(upstreams))
    checked = [upstream for upstream in bounded if upstream.health]
    number = sum(len(upstream.backends) + len(upstream.standby) for upstream in checked)
    rate = sum(1000 * (len(each.backends) + len(each.standby)) / each.check_every for each in checked)
    assert rate <= 400
    assert rate > 200 or all(upstream.check_every == CHECK_INTERVAL for upstream in checked)
    assert number > 200 or bounded == tuple(upstreams)
    assert [replace(each, check_every=CHECK_INTERVAL) for each in bounded] == upstreams


@pytest.mark.parametrize(("every", "times"), [(CHECK_INTERVAL, ("0.500s", "0.250s")), (2000, ("2.000s", "2.000s"))])
def test_the_interval_of_health_checks_is_that_of_envoy(every: int, times: tuple[str, str]) -> None:
    """A backend that failed is checked twice as often, unless there are too many."""
    upstream = Upstream(UpstreamName("tcp-1"), Protocol.TCP, (), health=ConnectCheck(), check_every=every)
    checks = objects_of(cluster(upstream, Discovery.STATIC)["health_checks"])
    assert [(check["interval"], check["unhealthy_interval"]) for check in checks] == [times]
    assert [check["no_traffic_interval"] for check in checks] == [times[0]]


def endpoints(backend: Backend) -> str:
    """Render the endpoints of an upstream with this backend alone, which kube-proxy's health port answers for."""
    name = UpstreamName("tcp-1-ipv4")
    upstream = Upstream(name, Protocol.TCP, (backend,), health=HttpCheck(10256))
    proxy = Proxy(ProxyName("p"), ProxyId("0" * 12), Discovery.EDS, upstreams=(upstream,))
    return render(proxy).files[f"eds-{name}.json"]
