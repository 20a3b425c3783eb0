"""Traffic rates of a Service on the live page: the difference of two readings. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from locallb.traffic.figures import Counts, Details
from locallb.traffic.table import TrafficRow

Rates = Mapping[str, object]


def rates(rows: Iterable[TrafficRow], seconds: float) -> dict[str, list[Rates]]:
    """Return what flowed in so many seconds, by the key of the Service; nothing of those where nothing did."""
    by_service: dict[str, list[Rates]] = {}
    for row in rows:
        if row.answers and _is_alive(row.figures.total, row.figures.details):
            by_service.setdefault(str(row.key), []).append(_rates(row, seconds))
    return by_service


def _is_alive(total: Counts, details: Details | None) -> bool:
    return total != Counts() or (details is not None and bool(details.received or details.sent))


def _rates(row: TrafficRow, seconds: float) -> Rates:
    total, details = row.figures.total, row.figures.details
    counts = {"connections": total.connections, "refused": total.failed_connections}
    if row.is_http:
        counts |= {"requests": total.requests, "failed": total.failed_requests}
    if details:
        counts |= {"in": details.received, "out": details.sent}
    each_second = {name: round(count / seconds, 1) for name, count in counts.items()}
    latencies = _latencies(details) if details else {}
    return {"ports": list(row.ports), "open": total.active, **each_second, **latencies}


def _latencies(details: Details) -> Mapping[str, float]:
    times = {f"p{percent}": details.latencies.percentile(percent) for percent in (50, 99)}
    return {name: round(time, 2) for name, time in times.items() if time is not None}
