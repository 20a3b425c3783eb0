"""The present orders, as a table and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from locallb.cli.arguments import Arguments
from locallb.cli.console import Out
from locallb.model.faults import WHOLE, Fault
from locallb.model.formatting import few
from locallb.model.objects import Service
from locallb.sources.overrides import seconds_until

_HEAD = ("SERVICE", "REFUSED", "HANGING", "RESET", "DELAYED", "ANSWERED", "DOWN", "LEFT", "UNTIL", "ORDERED BY")
_MAX = 3
"""Backends that are named."""
_UNITS = ((86400, "d"), (3600, "h"), (60, "m"), (1, "s"))


class _Row(NamedTuple):
    """What ends at one time."""

    service: Service
    until: str
    by: str
    fault: Fault | None = None
    down: tuple[str, ...] = ()


def show(services: Sequence[Service], args: Arguments, out: Out) -> None:
    """Show the faults of these."""
    rows = [row for service in services for row in _rows(service)]
    if args.json:
        out.raw(json.dumps([_fields(row) for row in rows], indent=2))
    elif rows:
        out.table(_HEAD, [_cells(row) for row in rows])
    else:
        out.line("No fault is ordered.")


def _rows(service: Service) -> Iterator[_Row]:
    if fault := service.failing:
        by = "command" if service.ordered.fault else "annotation"
        yield _Row(service, fault.until, by, fault)
    if down := service.ordered.down:
        yield _Row(service, down.until, "command", down=tuple(sorted(down.names)))


def _fields(row: _Row) -> dict[str, object]:
    fault = row.fault
    delay, status = (fault.delay, fault.status) if fault else (None, None)
    return {
        **row.service.key._asdict(),
        **{name: _percent(share) for name, share in zip(("refuse", "hang", "reset"), _shares(fault), strict=True)},
        "delay": {"milliseconds": delay.milliseconds, "share": _percent(delay.share)} if delay else None,
        "status": {"code": status.status, "share": _percent(status.share)} if status else None,
        "down": list(row.down),
        "until": row.until,
        "seconds": _remaining(row.until),
        "by": row.by,
    }


def _cells(row: _Row) -> tuple[str, ...]:
    shares = [f"{_percent(share):g}%" if share else "-" for share in _shares(row.fault)]
    shares += [
        part.terms if part else "-" for part in ((row.fault.delay, row.fault.status) if row.fault else (None, None))
    ]
    by = {"command": "locallb fault", "annotation": "local-lb.dev/fault"}[row.by]
    down = few(row.down, _MAX) or "-"
    return str(row.service.key), *shares, down, duration(_remaining(row.until)), row.until, by


def _shares(fault: Fault | None) -> tuple[int, int, int]:
    return (fault.refuse, fault.hang, fault.reset) if fault else (0, 0, 0)


def _percent(share: int) -> float:
    return share * 100 / WHOLE


def _remaining(until: str) -> int:
    return max(0, round(seconds_until(until)))


def duration(seconds: int) -> str:
    """Write seconds in the two largest units that they have: `1h 5m`."""
    parts: list[str] = []
    for size, unit in _UNITS:
        if seconds >= size or parts:
            parts.append(f"{seconds // size}{unit}")
            seconds %= size
    return " ".join(parts[:2]) or "0s"
