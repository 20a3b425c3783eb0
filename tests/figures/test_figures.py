"""Figures add up without loss, and what came between two looks is the rest."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from locallb.traffic.figures import Bin, Counts, Details, Latencies, UpstreamFigures, by_upstream

numbers = st.integers(0, 10**6)
bins = st.integers(1, 99).map(lambda low: Bin(float(low), 1.0))
latencies = st.dictionaries(bins, st.integers(1, 1000), max_size=6).map(Latencies)
counts = st.builds(Counts, numbers, numbers, st.just(0), numbers, numbers)
details = st.builds(Details, numbers, numbers, latencies)
figures = st.builds(UpstreamFigures, st.dictionaries(st.sampled_from("abc"), counts), st.one_of(st.none(), details))


@given(figures, figures, figures)
def test_the_order_of_proxies_is_no_matter(a: UpstreamFigures, b: UpstreamFigures, c: UpstreamFigures) -> None:
    """Sums of sums are the same, also where one counts no details."""
    assert (a + b) + c == a + (b + c)
    assert a + b == b + a
    assert (a + b).total == a.total + b.total


@given(figures, figures)
def test_difference_of_two_figures_is_the_traffic_between(before: UpstreamFigures, gained: UpstreamFigures) -> None:
    """Of each backend that is still there."""
    rest = (before + gained).since(before)
    assert all(rest.backends[place] == counted for place, counted in gained.backends.items())
    assert rest.total == gained.total
    if before.details and gained.details:
        assert rest.details == gained.details


@pytest.mark.parametrize("kind", ["counts", "latencies", "details"])
def test_a_count_that_began_anew_is_all_new(kind: str) -> None:
    """Nothing is ever negative: a cluster that was replaced counts from zero."""
    if kind == "counts":
        assert Counts(3, requests=1).since(Counts(9, requests=9)) == Counts(3, requests=1)
    elif kind == "latencies":
        few = Latencies({Bin(1, 1): 2})
        assert few.since(Latencies({Bin(1, 1): 5})) == few
    else:
        assert Details(3, 9).since(Details(9, 3)) == Details(3, 9)


@given(st.lists(st.lists(st.integers(1, 99), min_size=1), min_size=1, max_size=4))
def test_percentiles_are_those_of_all_requests_together(proxies: list[list[int]]) -> None:
    """Each is in the bin where the sorted times of all proxies have it, to the width of a bin."""
    merged = sum((Latencies(Counter(Bin(float(each), 1.0) for each in times)) for times in proxies), Latencies())
    times = sorted(each for proxy in proxies for each in proxy)
    for percent in (1, 50, 90, 99, 100):
        rank = max(0, -(-len(times) * percent // 100) - 1)
        reported = merged.percentile(percent)
        assert reported is not None
        assert times[rank] <= reported <= times[rank] + 1


def test_no_request_has_no_percentile() -> None:
    """Nobody waited."""
    assert Latencies().percentile(50) is None


def host(address: dict[str, Any], **values: int) -> dict[str, Any]:
    """Make a backend as Envoy tells of it; it leaves out zeros and writes numbers as text."""
    stats = [{"name": name, **({"value": str(value)} if value else {})} for name, value in values.items()]
    return {"address": address, "stats": stats}


def test_attempts_are_taken_apart_and_a_backend_without_an_address_is_passed_over() -> None:
    """What Envoy counts as a connection includes those that nobody took."""
    present = {"socket_address": {"address": "127.0.0.1", "port_value": 80}}
    hosts = [
        host(present, cx_total=7, cx_connect_fail=2, cx_active=1, rq_success=4, rq_error=3, rq_total=9),
        host({"pipe": {"path": "x"}}, cx_total=1),
    ]
    read = by_upstream([{"name": "web", "host_statuses": hosts}, {"name": "empty"}], [])
    assert read["web"].backends == {"127.0.0.1:80": Counts(5, 2, 1, 7, 3)}
    assert (read["web"].details, read["empty"].total) == (None, Counts())


def test_details_are_those_of_their_cluster() -> None:
    """Statistics come in one list, histograms last."""
    stated = json.loads(
        '[{"name":"cluster.web.upstream_cx_rx_bytes_total","value":5},'
        '{"name":"cluster.web.upstream_cx_tx_bytes_total","value":3},'
        '{"histograms":{"details":[{"name":"cluster.web.upstream_rq_time",'
        '"totals":[{"lower_bound":1,"width":0.1,"count":4}]}]}}]'
    )
    read = by_upstream([{"name": "web"}, {"name": "api"}], stated)
    assert read["web"].details == Details(3, 5, Latencies({Bin(1.0, 0.1): 4}))
    assert read["api"].details is None
