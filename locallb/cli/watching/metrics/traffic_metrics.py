"""Metrics of traffic through Services, for stacks that want them: read from proxies at each scrape.

Series are bounded: a limited number of ports have metrics, in the order of their Services, and the number of the
others is a metric. A proxy that doesn't answer in time is left out of that scrape. Not here: the counters (`traffic`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from locallb.planning.planned import Plan
from locallb.traffic.ask import traffic
from locallb.traffic.figures import Latencies
from locallb.traffic.table import TrafficRow, first

PREFIX = "locallb_traffic"
LABELS = ("cluster", "namespace", "name", "kind", "ports")
TIMEOUT = 0.8
"""Seconds that all proxies get together: health waits for them, and who probes it usually gives up after a second."""
BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Seconds, of the histogram. Envoy counts in bins of which these are ends."""
_COUNTED = (
    ("connections", "Connections that backends took."),
    ("refused_connections", "Attempts that a backend didn't take."),
    ("requests", "Requests of HTTP that were answered."),
    ("failed_requests", "Those answered with 500 and more, or not at all."),
)
_BYTES = (("received_bytes", "Bytes from clients to backends."), ("sent_bytes", "Bytes from backends to clients."))
_REJECTED = "Requests with too many or too large headers, or not in HTTP, which no backend saw."
_OPEN = "Connections to backends, now."
_TOOK = "How long requests took; of the sum only what the bins tell."


class TrafficMetrics(Collector):
    """Traffic of a stack, by the plan and limit that `wanted` returns; None: metrics are disabled."""

    def __init__(self, wanted: Callable[[], tuple[Plan, int] | None]) -> None:
        self._wanted = wanted

    def describe(self) -> Iterator[Metric]:
        """Name nothing before it is asked for."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        """Read the figures of all proxies, and yield them as metrics."""
        if wanted := self._wanted():
            plan, maximum = wanted
            chosen, left_out = first(plan, maximum)
            rows = traffic(chosen, TIMEOUT)
            yield from families([row for row in rows if row.answers])
            yield GaugeMetricFamily(f"{PREFIX}_ports_left_out", "Ports that aren't told: too many.", left_out)
            silent = sum(not row.answers for row in rows)
            yield GaugeMetricFamily(f"{PREFIX}_ports_silent", "Ports whose proxy didn't answer in time.", silent)


def families(rows: Sequence[TrafficRow]) -> Iterator[Metric]:
    """Make the metrics of what proxies answered."""
    counts = [(_labels(row), row.figures.total, row.is_http) for row in rows]
    open_now = GaugeMetricFamily(f"{PREFIX}_open_connections", _OPEN, labels=LABELS)
    for labels, total, _ in counts:
        open_now.add_metric(labels, total.active)
    yield open_now
    names = {name: CounterMetricFamily(f"{PREFIX}_{name}", text, labels=LABELS) for name, text in (*_COUNTED, *_BYTES)}
    for labels, total, is_http in counts:
        names["connections"].add_metric(labels, total.connections)
        names["refused_connections"].add_metric(labels, total.failed_connections)
        if is_http:
            names["requests"].add_metric(labels, total.requests)
            names["failed_requests"].add_metric(labels, total.failed_requests)
    rejected = CounterMetricFamily(f"{PREFIX}_rejected_requests", _REJECTED, labels=LABELS)
    for row in rows:
        if row.rejected is not None:
            rejected.add_metric(_labels(row), row.rejected)
    yield rejected
    took = HistogramMetricFamily(f"{PREFIX}_request_duration_seconds", _TOOK, labels=LABELS)
    for row in rows:
        if details := row.figures.details:
            names["received_bytes"].add_metric(_labels(row), details.received)
            names["sent_bytes"].add_metric(_labels(row), details.sent)
            if row.is_http:
                took.add_metric(_labels(row), _buckets(details.latencies), _sum(details.latencies))
    yield from (*names.values(), took)


def _labels(row: TrafficRow) -> list[str]:
    return [row.key.cluster, row.key.namespace, row.key.name, str(row.key.kind), " ".join(row.ports)]


def _buckets(latencies: Latencies) -> list[tuple[str, float]]:
    """Count what took at most so long, bound by bound."""
    bucket_counts = [0] * (len(BOUNDS) + 1)
    for latency_bin, count in latencies.counts.items():
        end = (latency_bin.low + latency_bin.width) / 1000
        bucket_counts[sum(bound < end - 1e-9 for bound in BOUNDS)] += count
    return list(zip([*map(str, BOUNDS), "+Inf"], map(float, accumulate(bucket_counts)), strict=True))


def _sum(latencies: Latencies) -> float:
    middles = ((latency_bin.low + latency_bin.width / 2, count) for latency_bin, count in latencies.counts.items())
    return sum(middle * count for middle, count in middles) / 1000
