"""What is ordered, as a table and as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence

from locallb.cli.arguments import Arguments
from locallb.cli.console import Out
from locallb.model.faults import WHOLE, Fault
from locallb.model.objects import Service
from locallb.sources.orders import seconds_until

_HEAD = ("SERVICE", "REFUSED", "HANGING", "RESET", "LEFT", "UNTIL", "ORDERED BY")
_UNITS = ((86400, "d"), (3600, "h"), (60, "m"), (1, "s"))


def show(services: Sequence[Service], args: Arguments, out: Out) -> None:
    """Show the faults of these, all of which have one."""
    faults = [(service, service.failing) for service in services if service.failing]
    if args.json:
        out.raw(json.dumps([_fields(service, fault) for service, fault in faults], indent=2))
    elif faults:
        out.table(_HEAD, [_cells(service, fault) for service, fault in faults])
    else:
        out.line("No fault is ordered.")


def _fields(service: Service, fault: Fault) -> dict[str, object]:
    return {
        **service.key._asdict(),
        "refuse": _percent(fault.refuse),
        "hang": _percent(fault.hang),
        "reset": _percent(fault.reset),
        "until": fault.until,
        "seconds": _left(fault),
        "by": "command" if service.ordered.fault else "annotation",
    }


def _cells(service: Service, fault: Fault) -> tuple[str, ...]:
    shares = (f"{_percent(share):g}%" for share in (fault.refuse, fault.hang, fault.reset))
    by = "locallb fault" if service.ordered.fault else "local-lb.dev/fault"
    return str(service.key), *shares, duration(_left(fault)), fault.until, by


def _percent(share: int) -> float:
    return share * 100 / WHOLE


def _left(fault: Fault) -> int:
    return max(0, round(seconds_until(fault.until)))


def duration(seconds: int) -> str:
    """Write seconds in the two largest units that they have: `1h 5m`."""
    parts: list[str] = []
    for size, unit in _UNITS:
        if seconds >= size or parts:
            parts.append(f"{seconds // size}{unit}")
            seconds %= size
    return " ".join(parts[:2]) or "0s"
