"""What commands ordered for Services: a file of this stack, read with its sources, whatever those are.

Orders are of this stack and not of a cluster: who else serves the same Services hears of them by conditions only, and
nothing has to be taken out of a cluster again. What is over counts as absent; `destroy` removes the file with all
that is kept of the stack. Not here: what an order means (`planning`), and who gives it (`cli.orders`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from locallb.model.errors import ClientError
from locallb.model.faults import NO_ORDER, Down, Order, at_time, parse_fault
from locallb.model.identities import Home, ObjectKey
from locallb.model.objects import Service
from locallb.sources.readings import readings_directory
from locallb.storage import files, paths

FORMAT = 1
NAME = "orders"
"""Of the file; sources' readings end with `.json`."""
_LARGEST = 1 << 20
"""Bytes of the file."""


@dataclass(frozen=True, slots=True)
class Orders:
    """What is in force at one moment."""

    now: str
    """The moment, written as ends are."""
    by_service: Mapping[ObjectKey, Order] = field(default_factory=dict)
    notices: tuple[str, ...] = ()
    """Why they can't be read."""

    def of(self, services: Iterable[Service]) -> tuple[Service, ...]:
        """Return the Services with their orders, and without annotated faults that are over."""
        return tuple(self._with_order(service) for service in services)

    def _with_order(self, service: Service) -> Service:
        """Return the very same one where nothing is ordered: whoever knows it need not compare."""
        order, fault = self.by_service.get(service.key, NO_ORDER), at_time(service.fault, self.now)
        if order == service.ordered and fault == service.fault:
            return service
        return replace(service, ordered=order, fault=fault)


def path_of(home: Home) -> Path:
    """Return where the stack's orders are."""
    return readings_directory(home) / NAME


def written(moment: datetime) -> str:
    """Write a moment as ends are."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def read_orders(home: Home) -> Orders:
    """Read what is in force now. What can't be read is told, and keeps nobody from serving."""
    now, path = written(datetime.now(UTC)), path_of(home)
    try:
        return Orders(now, _in_force(_read(path), now))
    except (ClientError, ValueError, TypeError, AttributeError, RecursionError) as error:
        why = error if isinstance(error, ClientError) else f"{path} isn't ours"
        return Orders(
            now,
            notices=(
                f"what commands ordered can't be read, and counts as over: {why}; remove that file, or order it again",
            ),
        )


def change_orders(home: Home, keys: Iterable[ObjectKey], change: Callable[[Order], Order]) -> None:
    """Give these Services other orders; what is over is forgotten. Raises ClientError."""
    path = path_of(home)
    paths.private_directory(path.parent)
    with files.locked(path.parent):
        known = dict(read_orders(home).by_service)
        known.update({key: change(known.get(key, NO_ORDER)) for key in keys})
        _write(path, {key: order for key, order in known.items() if order != NO_ORDER})


def next_end(services: Iterable[Service]) -> str:
    """Return when the first order is over that is in force and has an end; empty where there is none."""
    return min((end for service in services for end in service.ends), default="")


def seconds_until(end: str) -> float:
    """Return how far away an end is."""
    return (datetime.fromisoformat(end) - datetime.now(UTC)).total_seconds()


def _read(path: Path) -> Mapping[ObjectKey, Order]:
    document = json.loads(files.read_shared(path, _LARGEST) or "{}")
    if document and document.get("version") != FORMAT:
        raise ValueError
    return {ObjectKey.parse(name): _order(fields) for name, fields in document.get("orders", {}).items()}


def _order(fields: Mapping[str, Any]) -> Order:
    down = _names(fields, "down")
    return Order(
        parse_fault(fields["fault"]) if fields.get("fault") else None,
        _names(fields, "drained"),
        Down(down, str(fields.get("downUntil"))) if down else None,
    )


def _names(fields: Mapping[str, Any], name: str) -> frozenset[str]:
    names = fields.get(name, ())
    if not isinstance(names, list | tuple):
        raise ValueError  # noqa: TRY004 - one kind of mistake: the file isn't ours
    return frozenset(map(str, names))


def _fields(order: Order) -> Mapping[str, object]:
    down = {"down": sorted(order.down.names), "downUntil": order.down.until} if order.down else {}
    return {"fault": order.fault.words if order.fault else "", "drained": sorted(order.drained), **down}


def _write(path: Path, orders: Mapping[ObjectKey, Order]) -> None:
    if not orders:
        files.remove(path)
        return
    packed = {str(key): _fields(orders[key]) for key in sorted(orders)}
    files.write(path, json.dumps({"version": FORMAT, "orders": packed}, indent=2) + "\n")


def _in_force(orders: Mapping[ObjectKey, Order], now: str) -> Mapping[ObjectKey, Order]:
    current = {key: order.at(now) for key, order in orders.items()}
    return {key: order for key, order in current.items() if order != NO_ORDER}
