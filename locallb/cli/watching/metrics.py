"""Prometheus metrics of the watch loop, and of traffic through Services for stacks that want them.

The number of series is bounded: labels of the loop's metrics have no names of Services, and only a limited number of
ports have metrics of traffic.

Not here: the traffic counters (`traffic.figures`), and the pages that serve metrics (`supervision`).
"""

from __future__ import annotations

import time
from collections import Counter as Tallied
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate
from threading import Lock

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector, disable_created_metrics
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from locallb.cli.watching.board import Board, EventBatch, RelayedEvent, View
from locallb.gateway.status_patch import StatusVerdict, verdict_of
from locallb.kubernetes.api.client import WRITES
from locallb.model.objects import Via
from locallb.planning.notices import OF_OVERRIDES
from locallb.planning.planned import Plan
from locallb.planning.service_rows import Observation, State
from locallb.report.changes import rooms_of
from locallb.threads import THREADS
from locallb.traffic.figures import Latencies, TrafficRow, first
from locallb.traffic.reading import traffic
from locallb.watch.events import Converged, Failed, LoopEvent, Planned, Updated

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
    """Traffic of a stack, by the plan and limit that `wanted` returns; None: metrics are disabled.

    Proxies are read at each scrape; one that doesn't answer in time is left out of it. Ports have metrics in the order
    of their Services, up to the limit, and the number of the remaining ones is a metric.
    """

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


METRIC_PREFIX = "locallb"
BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Seconds."""


class Metrics:
    """Methods may be called from any thread; `observed` gives what proxies answered last.

    Events are counted as they happen, which takes microseconds; gauges are computed at each scrape.
    """

    def __init__(self, observed: Callable[[], Mapping[str, Observation | None]]) -> None:
        self._lock = Lock()
        self._board = Board()
        self._observed = observed
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._ready = _Ready()

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"{METRIC_PREFIX}_{name}", text, labels, registry=self.registry)

        def seconds(name: str, text: str) -> Histogram:
            return Histogram(f"{METRIC_PREFIX}_{name}_seconds", text, buckets=BUCKETS, registry=self.registry)

        self._marks = counter("marks", "Why the loop looked, by cause; those of one look count once each.", "cause")
        self._plan = seconds("plan", "Reading what was marked, and planning.")
        self._planned = seconds("planned_latency", "From the first mark to the plan.")
        self._update = seconds("update", "One update of at most 50 load balancers.")
        self._applied = seconds("applied_latency", "From the first mark to the end of an update.")
        self._updates = counter("updates", "Updates, by outcome: ok, or failed for some load balancer.", "outcome")
        self._operations = counter("resource_operations", "Operations on resources, by kind.", "operation")
        self._failures = counter("failures", "Looks that failed as a whole, by what was to blame.", "kind")
        self._service_failures = counter("load_balancer_failures", "Load balancers that an update failed for.")
        self.registry.register(_Now(self._inspect, self._ready))
        self.registry.register(TrafficMetrics(self._with_traffic))

    def listen(self, event: LoopEvent) -> None:
        self._ready.listen(event)
        latest = event if isinstance(event, Planned) else None
        with self._lock:
            self._board.take(EventBatch((RelayedEvent(time.time(), event),), latest))
        match event:
            case Planned():
                for cause, count in Tallied(mark.cause for mark in event.marks).items():
                    self._marks.labels(cause.value).inc(count)
                self._plan.observe(event.seconds)
                self._planned.observe(event.latency)
            case Updated():
                self._updates.labels("failed" if event.failed else "ok").inc()
                self._update.observe(event.seconds)
                self._applied.observe(event.latency)
                self._service_failures.inc(len(event.failed))
                for operation, count in event.changes.items():
                    self._operations.labels(operation).inc(count)
            case Failed():
                self._failures.labels(event.kind).inc()
            case _:
                pass

    def unready(self) -> str:
        """Return why the plan may not be served yet; empty after everything has converged once."""
        return self._ready.why()

    def text(self, accept: str) -> tuple[bytes, str]:
        """Return all metrics in a form that the client accepts, and which form that is."""
        encode, kind = choose_encoder(accept)
        return encode(self.registry), kind

    def _with_traffic(self) -> tuple[Plan, int] | None:
        """Return the plan, and for how many ports the stack wants metrics."""
        with self._lock:
            planned = self._board.planned
        maximum = planned.settings.traffic_metrics if planned and planned.settings else 0
        return (planned.plan, maximum) if planned and maximum else None

    def _inspect(self) -> tuple[Board, list[View]]:
        observed = self._observed()
        with self._lock:
            self._board.observed = observed
            return self._board, self._board.views()


class _Ready:
    """Whether the loop once had everything as planned, can read and plan now, and every thread works."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._converged = False
        self._failure = ""
        self._stale = ""

    def listen(self, event: LoopEvent) -> None:
        with self._lock:
            match event:
                case Converged():
                    self._converged = True
                case Failed():
                    self._failure = event.sentence
                case Planned():
                    self._failure = ""
                    self._stale = next(iter(event.stale.values()), "")
                case _:
                    pass

    def why(self) -> str:
        with self._lock:
            beginning = "" if self._converged else "the first convergence isn't done"
            return self._failure or beginning or self._stale or THREADS.failure()


class _Now(Collector):
    """Collects the current values at the moment of a scrape."""

    def __init__(self, inspect: Callable[[], tuple[Board, list[View]]], ready: _Ready) -> None:
        self._inspect = inspect
        self._ready = ready

    def describe(self) -> Iterator[Metric]:
        """Name nothing before it is asked for."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        board, views = self._inspect()
        yield _gauge(
            "ready",
            "1 after the first convergence, while sources can be read and every thread works.",
            not self._ready.why(),
        )
        yield _gauge("open_load_balancers", "Load balancers that aren't as planned.", board.open)
        yield _gauge("waiting_retries", "Load balancers that failed and are tried again.", board.waiting)
        yield _gauge("last_converged_timestamp_seconds", "When all was as planned last; 0 if never.", board.converged)
        yield _by_state(views)
        yield _by_reason(views)
        yield _by_way(views)
        yield _reported(board)
        yield from _proxies(board)
        yield _stale(board)
        yield from _delays(board)
        yield from _pools(board)
        yield _counted("api_writes", "Requests to Kubernetes APIs that write.", "kind", WRITES.counts())
        text = "Threads that something unexpected ended, by what they are for; they begin again by themselves."
        yield _counted("thread_failures", text, "thread", THREADS.counts())


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(f"{METRIC_PREFIX}_{name}", text, value=value)


def _labelled(name: str, text: str, label: str, values: Mapping[str, float]) -> Metric:
    family = GaugeMetricFamily(f"{METRIC_PREFIX}_{name}", text, labels=[label])
    for key, value in sorted(values.items()):
        family.add_metric([key], value)
    return family


def _counted(name: str, text: str, label: str, counts: Mapping[str, int]) -> Metric:
    family = CounterMetricFamily(f"{METRIC_PREFIX}_{name}", text, labels=[label])
    for key, count in sorted(counts.items()):
        family.add_metric([key], count)
    return family


def _by_state(views: list[View]) -> Metric:
    counts = Tallied(view.row.state for view in views)
    return _labelled("services", "Services, by state.", "state", {str(state): counts[state] for state in State})


def _by_reason(views: list[View]) -> Metric:
    counts = Tallied(str(code) for view in views for code in view.row.codes if code not in OF_OVERRIDES)
    return _labelled("service_problems", "Services that aren't wholly served, by reason code.", "reason", counts)


def _by_way(views: list[View]) -> Metric:
    counts = Tallied(port.via for view in views for port in view.row.ports)
    text = "Ports of Services, by where their connections go first."
    return _labelled("ports", text, "via", {str(via): counts[via] for via in Via})


def _reported(board: Board) -> Metric:
    text = "Objects of Gateway API and Ingresses that are told in running clusters what became of them."
    family = GaugeMetricFamily(f"{METRIC_PREFIX}_told_objects", text, labels=["kind", "told"])
    statuses = board.planned.plan.all_statuses if board.planned else ()
    counts = Tallied((status.key.kind, verdict_of(status.status)) for status in statuses)
    for kind in sorted({kind for kind, _ in counts}):
        for verdict in StatusVerdict:
            family.add_metric([kind, verdict], counts[kind, verdict])
    return family


def _proxies(board: Board) -> Iterator[Metric]:
    planned = len(board.planned.plan.proxies) if board.planned else 0
    yield _gauge("proxies", "Proxies that are planned.", planned)
    answering = sum(answer is not None for answer in board.observed.values())
    yield _gauge("proxies_answering", "Proxies that answered when they were asked last.", answering)


def _stale(board: Board) -> Metric:
    sources = board.planned.settings.sources if board.planned and board.planned.settings else ()
    values = {str(source.cluster): float(source.cluster in board.stale) for source in sources}
    return _labelled("source_stale", "1 where a source can't be read and counts as last read.", "source", values)


def _delays(board: Board) -> Iterator[Metric]:
    now, longest = time.time(), dict[str, float]()
    for delay in board.delays:
        longest[delay.kind] = max(longest.get(delay.kind, 0.0), now - delay.since)
    text = "How long the slowest outside party of a kind hasn't answered; only of kinds of which one doesn't."
    yield _labelled("delay_seconds", text, "party", longest)
    waiting = {key for delay in board.delays for key in delay.waiting}
    yield _gauge("delayed_load_balancers", "Load balancers that wait for a party that doesn't answer.", len(waiting))


def _pools(board: Board) -> Iterator[Metric]:
    labels = ["pool", "family"]
    size = GaugeMetricFamily(f"{METRIC_PREFIX}_pool_addresses", "Addresses of a pool.", labels=labels)
    used = GaugeMetricFamily(f"{METRIC_PREFIX}_pool_addresses_used", "Addresses that our Services have.", labels=labels)
    free = GaugeMetricFamily(f"{METRIC_PREFIX}_pool_addresses_free", "Addresses that nobody has.", labels=labels)
    planned = board.planned
    if planned and planned.snapshot and planned.settings:
        for room in rooms_of(planned.plan, planned.snapshot, planned.settings):
            for family, value in ((size, room.size), (used, room.used), (free, room.free)):
                family.add_metric([room.pool, str(room.family)], value)
    yield from (size, used, free)
