"""Datagrams go to the backends of a route by weight, however many endpoints each of them has."""

from __future__ import annotations

import json
import re
from fractions import Fraction
from ipaddress import ip_address

from hypothesis import given
from hypothesis import strategies as st

from locallb.envoy.clusters import assignment
from locallb.model.identities import Protocol, UpstreamName
from locallb.model.serving import Backend, Upstream
from locallb.planning.gateways import datagram_shares

Behind = list[tuple[int, list[Backend]]]


def _behind(drawn: list[tuple[int, int]]) -> Behind:
    """Make targets of a weight and so many endpoints each, none of them twice."""
    return [
        (weight, [Backend.at(ip_address(f"10.0.{place}.{number}"), 53) for number in range(count)])
        for place, (weight, count) in enumerate(drawn)
    ]


@given(st.lists(st.tuples(st.integers(1, 100), st.integers(0, 6)), max_size=4))
def test_each_target_has_its_share_and_its_endpoints_are_alike(drawn: list[tuple[int, int]]) -> None:
    """Targets without endpoints leave theirs to the others."""
    behind = _behind(drawn)
    shares = datagram_shares(behind)
    total = sum(weight for weight, backends in behind if backends)
    for weight, backends in behind:
        mine = [shares[backend] for backend in backends]
        assert len(set(mine)) <= 1
        assert not mine or Fraction(sum(mine), sum(shares.values())) == Fraction(weight, total)


@given(st.lists(st.tuples(st.integers(1, 1_000_000), st.integers(0, 60)), max_size=16))
def test_weights_are_such_as_envoy_takes(drawn: list[tuple[int, int]]) -> None:
    """Each is at least 1, and all of thousands of endpoints stay below 2**32."""
    shares = datagram_shares(_behind(drawn)).values()
    assert all(1 <= share <= 10_000 for share in shares)


def test_an_endpoint_of_two_targets_has_both_shares() -> None:
    """One Service may be named twice."""
    (backend,) = _behind([(1, 1)])[0][1]
    other = Backend.at(ip_address("10.0.9.9"), 53)
    assert datagram_shares([(1, [backend]), (2, [backend]), (1, [other])]) == {backend: 3, other: 1}


def test_envoy_gets_weights_where_backends_differ() -> None:
    """Those that are alike are rendered as ever."""
    backends = tuple(backend for _, some in _behind([(1, 1), (3, 1)]) for backend in some)
    weighed = json.dumps(assignment(Upstream(UpstreamName("udp-53"), Protocol.UDP, backends, weights=(1, 3))))
    assert re.findall(r'"load_balancing_weight": (\d+)', weighed) == ["1", "3"]
    alike = json.dumps(assignment(Upstream(UpstreamName("udp-53"), Protocol.UDP, backends)))
    assert "load_balancing_weight" not in alike
