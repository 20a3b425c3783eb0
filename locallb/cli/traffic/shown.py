"""Traffic figures as a table and as JSON. Not here: where they come from (`traffic`)."""

from __future__ import annotations

from collections.abc import Sequence

from locallb.cli.console import Out
from locallb.traffic.figures import Counts, Details
from locallb.traffic.table import TrafficRow

_HEAD = ("SERVICE", "PORTS", "OPEN", "CONNECTIONS", "REFUSED", "REQUESTS", "FAILED", "IN", "OUT", "P50", "P99")
_PERCENTILES = (50, 90, 99)
_THOUSAND, _UNITS = 1000, ("B", "kB", "MB", "GB", "TB")
_UNKNOWN = "-"
_NO_DETAILS = "`-` for bytes and latencies: set local-lb:trafficDetails to true, and proxies count them from then on."


def print_traffic(out: Out, rows: Sequence[TrafficRow], seconds: float) -> None:
    """Print a table: counts since the beginning, or what came in so many `seconds`."""
    if not rows:
        out.line("There is no Service here with a proxy, or none of that name.")
        return
    out.line((f"in {seconds:.1f} s" if seconds else "since proxies know their backends", "dim"))
    out.table(_HEAD, [_cells(row) for row in rows])
    for row in rows:
        if not row.answers:
            out.line(("! ", "yellow"), f"{row.key} has no proxy that answers; `locallb up` starts it")
    if not seconds and all(row.figures.details is None for row in rows if row.answers):
        out.line(_NO_DETAILS)


def traffic_json(rows: Sequence[TrafficRow]) -> list[dict[str, object]]:
    """Make the documented list of objects."""
    return [
        {
            **row.key._asdict(),
            "ports": list(row.ports),
            "http": row.is_http,
            "answers": row.answers,
            **_counts_json(row.figures.total),
            **_details_json(row.figures.details),
            "backends": [
                {"address": place, **_counts_json(counts)} for place, counts in sorted(row.figures.backends.items())
            ],
        }
        for row in rows
    ]


def _counts_json(counts: Counts) -> dict[str, object]:
    return {
        "connections": counts.connections,
        "refused": counts.failed_connections,
        "open": counts.active,
        "requests": counts.requests,
        "failed": counts.failed_requests,
    }


def _details_json(details: Details | None) -> dict[str, object]:
    if details is None:
        return {"bytesIn": None, "bytesOut": None, "latencies": None}
    percentiles = {f"p{percent}": _rounded(details.latencies.percentile(percent)) for percent in _PERCENTILES}
    return {
        "bytesIn": details.received,
        "bytesOut": details.sent,
        "latencies": percentiles if details.latencies.total else None,
    }


def _cells(row: TrafficRow) -> Sequence[str]:
    total, details = row.figures.total, row.figures.details
    requests = (str(total.requests), str(total.failed_requests)) if row.is_http else (_UNKNOWN, _UNKNOWN)
    flowed = (_size(details.received), _size(details.sent)) if details else (_UNKNOWN, _UNKNOWN)
    waited = [_wait(details.latencies.percentile(percent) if details else None) for percent in (50, 99)]
    connections = (str(total.active), str(total.connections), str(total.failed_connections))
    if not row.answers:
        connections, requests = (_UNKNOWN,) * 3, (_UNKNOWN,) * 2
    return str(row.key), " ".join(row.ports), *connections, *requests, *flowed, *waited


def _size(count: int) -> str:
    number, unit = float(count), 0
    while number >= _THOUSAND and unit < len(_UNITS) - 1:
        number, unit = number / _THOUSAND, unit + 1
    return f"{number:.1f} {_UNITS[unit]}" if unit else f"{count} B"


def _wait(milliseconds: float | None) -> str:
    return _UNKNOWN if milliseconds is None else f"{milliseconds:.3g} ms"


def _rounded(milliseconds: float | None) -> float | None:
    return None if milliseconds is None else round(milliseconds, 3)
