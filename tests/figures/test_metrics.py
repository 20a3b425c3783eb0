"""Metrics of traffic are what was counted, bounded, and off by default; the dashboard asks for what there is."""

from __future__ import annotations

import json
import re
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from locallb.cli.watching.metrics import BOUNDS, LABELS, Metrics, TrafficMetrics, families
from locallb.config.parsing import parse_settings
from locallb.config.settings import SettingsError
from locallb.model.identities import ClusterName, ObjectKey
from locallb.model.serving import Proxy
from locallb.planning.planned import Plan
from locallb.traffic.figures import Bin, Counts, Details, Latencies, TrafficRow, UpstreamFigures, first, traffic_rows
from locallb.traffic.reading import traffic
from tests.support.watch_story import planned, snapshot_of

DASHBOARD = Path(__file__).parents[2] / "deploy" / "grafana-dashboard.json"
KEY = ObjectKey(ClusterName("demo"), "shop", "web")
Samples = Mapping[str, float]


def row(figures: UpstreamFigures, *, http: bool = True) -> TrafficRow:
    """Make what is told of one port."""
    return TrafficRow(KEY, ("80/TCP", "443/TCP"), http, answers=True, figures=figures)


def reported(metrics: Iterator[Metric]) -> Samples:
    """Return values by name, those of a histogram by their bound as well; all have the labels of `KEY`."""
    values = {}
    for metric in metrics:
        for sample in metric.samples:
            labels = dict(sample.labels)
            bound = labels.pop("le", "")
            assert labels == dict(zip(LABELS, ("demo", "shop", "web", "services", "80/TCP 443/TCP"), strict=True))
            values[f"{sample.name}{bound and f' {bound}'}"] = sample.value
    return values


def test_traffic_metrics_sum_all_backends() -> None:
    """Of all backends together."""
    latencies = Latencies({Bin(1.0, 0.1): 3, Bin(10.0, 1.0): 2, Bin(20000.0, 1000.0): 1})
    backends = {"127.0.0.1:1": Counts(5, 1, 2, 6, 1), "127.0.0.1:2": Counts(1, 0, 0, 0, 0)}
    values = reported(families([row(UpstreamFigures(backends, Details(10, 20, latencies)))]))
    assert values["locallb_traffic_connections_total"] == 6
    assert values["locallb_traffic_refused_connections_total"] == 1
    assert values["locallb_traffic_open_connections"] == 2
    assert (values["locallb_traffic_requests_total"], values["locallb_traffic_failed_requests_total"]) == (6, 1)
    assert (values["locallb_traffic_received_bytes_total"], values["locallb_traffic_sent_bytes_total"]) == (10, 20)
    took = "locallb_traffic_request_duration_seconds"
    assert [values[f"{took}_bucket {bound}"] for bound in ("0.001", "0.0025", "0.01", "0.025", "10.0", "+Inf")] == [
        *(0, 3, 3, 5, 5, 6)
    ]
    assert values[f"{took}_count"] == 6


def test_uncounted_figures_have_no_metric() -> None:
    """Neither requests of bytes, nor bytes where nobody asked for them."""
    values = reported(families([row(UpstreamFigures({"127.0.0.1:1": Counts(5)}), http=False)]))
    assert values.keys() == {
        f"locallb_traffic_{name}" for name in ("connections_total", "refused_connections_total", "open_connections")
    }


@pytest.mark.parametrize("rejected", [None, 0, 3])
def test_rejected_requests_are_a_metric_where_the_proxy_counts_them(rejected: int | None) -> None:
    """They reached no backend, so that no other count has them."""
    values = reported(families([replace(row(UpstreamFigures()), rejected=rejected)]))
    assert values.get("locallb_traffic_rejected_requests_total") == rejected


BINS = st.builds(Bin, st.sampled_from((0.0, 0.9, 1.0, 4.9, 9.9, 99.0, 240.0, 9900.0, 1e6)), st.just(0.1))


@given(st.dictionaries(BINS, st.integers(0, 1000)))
def test_a_histogram_counts_each_request_once(counts: Mapping[Bin, int]) -> None:
    """Bound by bound, and never fewer with a higher bound."""
    values = reported(families([row(UpstreamFigures({}, Details(latencies=Latencies(counts))))]))
    buckets = [value for name, value in values.items() if "_bucket " in name]
    assert buckets == sorted(buckets)
    assert (len(buckets), buckets[-1]) == (len(BOUNDS) + 1, sum(counts.values()))


def plan_of(*names: str) -> Plan:
    return planned(snapshot_of(*names)).plan


@given(st.integers(0, 6))
def test_series_are_bounded_and_what_is_left_out_is_reported(maximum: int) -> None:
    """Whole Services, the first ones; their proxies alone are asked."""
    plan = plan_of("a", "b", "c", "d")
    chosen, left_out = first(plan, maximum)
    assert [placement.key.name for placement in chosen.placements] == list("abcd")[:maximum]
    assert {proxy.proxy.name for proxy in chosen.proxies} == {placement.proxy for placement in chosen.placements}
    assert left_out == max(0, 4 - maximum)


def plan_with(counts: list[int]) -> Plan:
    """Plan Services with so many ports, each of which leads elsewhere."""
    plan = plan_of(*(f"s{number}" for number in range(len(counts))))
    (planned_port,) = plan.placements[0].ports
    numbered = [
        replace(planned_port, port=replace(planned_port.port, port=number), listeners=()) for number in range(1, 7)
    ]
    pairs = zip(plan.placements, counts, strict=True)
    return replace(plan, placements=tuple(replace(each, ports=tuple(numbered[:count])) for each, count in pairs))


@given(st.lists(st.integers(1, 6), min_size=1, max_size=4), st.integers(0, 12))
def test_traffic_metrics_keep_the_bound_and_omit_only_services_that_do_not_fit(counts: list[int], maximum: int) -> None:
    """A Service with more ports than the bound hides none that come after it."""
    plan = plan_with(counts)
    chosen, left_out = first(plan, maximum)
    rows = Counter(row.key for row in traffic_rows(chosen, {}))
    assert rows.total() <= maximum
    assert rows.total() + left_out == sum(counts)
    absent = [count for placement, count in zip(plan.placements, counts, strict=True) if not rows[placement.key]]
    assert all(count > maximum - rows.total() for count in absent)


def test_proxies_are_not_queried_without_the_traffic_key() -> None:
    """Without the key there is no metric at all, and with it silent proxies are told."""
    assert list(TrafficMetrics(lambda: None).collect()) == []
    (left_out,) = [m for m in TrafficMetrics(lambda: (plan_of("a", "b"), 1)).collect() if m.name.endswith("_left_out")]
    (silent,) = [m for m in TrafficMetrics(lambda: (plan_of("a", "b"), 1)).collect() if m.name.endswith("_silent")]
    assert (left_out.samples[0].value, silent.samples[0].value) == (1, 1)


def test_silent_proxies_do_not_delay_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """The silent ones are rows that don't answer."""
    over, plan = threading.Event(), plan_of("a", "b")
    silent = plan.proxies[0].proxy.name

    def answer(proxy: Proxy) -> tuple[Mapping[str, UpstreamFigures], None]:
        if proxy.name == silent:
            over.wait()
        return {}, None

    monkeypatch.setattr("locallb.traffic.reading._figures", answer)
    try:
        rows = traffic(plan, 0.5)
    finally:
        over.set()
    assert [(row.key.name, row.answers) for row in rows] == [("a", False), ("b", True)]


@pytest.mark.parametrize(("value", "maximum"), [(True, 100), (False, 0), (7, 7), (1000, 1000)])
def test_the_key_is_a_flag_or_a_bound(value: object, maximum: int) -> None:
    """Off by default."""
    sources = [{"manifests": "m", "name": "c"}]
    assert parse_settings({"sources": sources, "trafficMetrics": value}).traffic_metrics == maximum
    assert parse_settings({"sources": sources}).traffic_metrics == 0


@pytest.mark.parametrize("value", [0, -1, 1001, "yes", None, 1.5, []])
def test_invalid_traffic_metrics_bound_is_refused(value: object) -> None:
    """With the key."""
    with pytest.raises(SettingsError, match="trafficMetrics"):
        parse_settings({"sources": [{"manifests": "m", "name": "c"}], "trafficMetrics": value})


def exposed() -> Mapping[str, set[str]]:
    """Return the labels of every sample that the endpoint has, by its name."""
    plan = planned(snapshot_of("web"))
    metrics = Metrics(dict)
    metrics.listen(replace(plan, settings=replace(plan.settings, traffic_metrics=5) if plan.settings else None))
    registry = CollectorRegistry()

    class Told:
        def collect(self) -> Iterator[Metric]:
            figures = UpstreamFigures({"127.0.0.1:1": Counts(1)}, Details(1, 1, Latencies({Bin(1.0, 0.1): 1})))
            yield from families([row(figures)])

    registry.register(Told())
    labels: dict[str, set[str]] = {}
    for text in (metrics.text("")[0].decode(), generate_latest(registry).decode()):
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                labels.setdefault(sample.name, set()).update(sample.labels)
    return labels


def expressions(node: Any) -> Iterator[tuple[str, str]]:  # noqa: ANN401 - JSON
    """Yield every expression of the dashboard, with the legend beside it."""
    if isinstance(node, dict):
        for key in ("expr", "query"):
            if isinstance(node.get(key), str) and "locallb_" in node[key]:
                yield node[key], node.get("legendFormat", "")
        for each in node.values():
            yield from expressions(each)
    elif isinstance(node, list):
        for each in node:
            yield from expressions(each)


def test_the_dashboard_asks_for_metrics_and_labels_that_there_are() -> None:
    """Each name in an expression is a sample's, and each label one of those."""
    present = exposed()
    requested = list(expressions(json.loads(DASHBOARD.read_text())))
    assert len(requested) > 10
    for expression, legend in requested:
        names = re.findall(r"locallb_\w+", expression)
        assert names
        for name in names:
            assert name in present, expression
            labels = {
                *re.findall(r"(\w+)=~?\"", expression),
                *re.findall(r"\{\{(\w+)\}\}", legend),
                *(word for terms in re.findall(r"by \(([^)]*)\)", expression) for word in terms.split(", ")),
                *re.findall(r"label_values\(\w+, (\w+)\)", expression),
            }
            assert labels <= present[name], expression


def test_every_metric_of_traffic_is_in_the_dashboard_and_in_the_docs() -> None:
    """Whoever turns them on finds them."""
    board, page = DASHBOARD.read_text(), (DASHBOARD.parents[1] / "docs" / "traffic.md").read_text()
    names = {re.sub(r"_(bucket|count|sum)$", "", name) for name in exposed() if name.startswith("locallb_traffic_")}
    assert len(names) == 10
    assert [name for name in sorted(names) if name not in board or name not in page] == []
