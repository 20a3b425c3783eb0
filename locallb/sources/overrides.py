"""Overrides of this stack (faults, drains): a file that commands write, read with the sources.

Overrides belong to this stack and not to a cluster: other controllers of the same object see them only as
conditions, and nothing has to be removed from a cluster. Expired ones count as absent; `destroy` removes the file with
all files of the stack. Not here: what an override means (`planning`), and creating one (`cli.overrides`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from operator import attrgetter, is_
from pathlib import Path
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from locallb.model.errors import ClientError
from locallb.model.faults import NO_ORDER, Down, Fault, Order, at_time, parse_fault
from locallb.model.fields import JsonObject
from locallb.model.gateway_objects import Gateway, GatewayRoute
from locallb.model.gateway_of_cluster import ApiObject, Ingress, ObjectOfCluster
from locallb.model.identities import Home, ObjectKey
from locallb.model.objects import Service
from locallb.model.snapshot import Snapshot
from locallb.model.texts import clipped
from locallb.storage import files, paths
from locallb.storage.paths import stack_directory

FORMAT = 1
NAME = "orders"
"""Of the file; sources' readings end with `.json`."""
_ANNOTATED = Gateway, GatewayRoute, Ingress
"""Routed kinds that may have the annotation."""
_FAULT: Callable[[Service], Fault | None] = attrgetter("fault")
_LARGEST = 1 << 20
"""Bytes of the file."""
_MISTAKES = (ValueError, TypeError, AttributeError, KeyError)
"""Errors of reading JSON of another form."""


class OverridesError(ClientError):
    """The file of orders isn't as it must be to order more."""


class Overrides(Struct, frozen=True):
    """Overrides in force at one moment."""

    now: str
    """The moment, written as ends are."""
    by_service: Mapping[ObjectKey, Order] = field(default_factory=dict)
    notices: tuple[str, ...] = ()
    """The reason that they can't be read."""

    def of(self, services: tuple[Service, ...]) -> tuple[Service, ...]:
        """Return the Services with their orders, and without annotated faults that are over."""
        if not self.by_service and not any(map(_FAULT, services)):
            return services
        return tuple(self._with_order(service) for service in services)

    def in_force(self, objects: tuple[ObjectOfCluster, ...]) -> tuple[ObjectOfCluster, ...]:
        """Return objects that are routed without annotated faults that are over."""
        remaining = tuple(
            _without_fault(cluster_object) if self._is_over(annotated(cluster_object.object)) else cluster_object
            for cluster_object in objects
        )
        return objects if all(map(is_, remaining, objects)) else remaining

    def _is_over(self, fault: Fault | None) -> bool:
        return fault is not None and not at_time(fault, self.now)

    def _with_order(self, service: Service) -> Service:
        """Return the identical Service if no override changed, so that an identity check is enough."""
        order, fault = self.by_service.get(service.key, NO_ORDER), at_time(service.fault, self.now)
        if order == service.ordered and fault == service.fault:
            return service
        return replace(service, ordered=order, fault=fault)


class _Retained(Struct, frozen=True):
    """Contents of the file."""

    overrides: Mapping[ObjectKey, Order]
    strange: Mapping[ObjectKey, object] = field(default_factory=dict)
    """Unreadable entries, as written."""


def path_of(home: Home) -> Path:
    """Return where the stack's orders are."""
    return stack_directory(home) / NAME


def written(moment: datetime) -> str:
    """Write a moment as ends are."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def read_overrides(home: Home) -> Overrides:
    """Read what is in force now. What can't be read is reported, and stops no Service.

    Raises FilesError where the host lacks what it takes to read: that ends no order.
    """
    now, path = written(datetime.now(UTC)), path_of(home)
    try:
        retained = _read(path)
    except ClientError as error:
        if isinstance(error, files.FilesError) and error.is_of_host:
            raise
        why = f"what commands ordered can't be read, and counts as over: {error}; mend or remove that file"
        return Overrides(now, notices=(why,))
    return Overrides(
        now, _in_force(retained.overrides, now), tuple(_strange(path, key) for key in sorted(retained.strange))
    )


def change_overrides(home: Home, keys: Iterable[ObjectKey], change: Callable[[Order], Order]) -> None:
    """Give these Services other orders; what is over is forgotten, and nothing else. Raises ClientError."""
    path = path_of(home)
    paths.private_directory(path.parent)
    with files.locked(path.parent):
        retained, changed = _read_to_change(path), tuple(keys)
        if lost := sorted(retained.strange.keys() & set(changed)):
            raise OverridesError(f"nothing was ordered: {_strange(path, lost[0])}, and order again")
        existing = dict(_in_force(retained.overrides, written(datetime.now(UTC))))
        existing.update({key: change(existing.get(key, NO_ORDER)) for key in changed})
        _write(path, {key: order for key, order in existing.items() if order != NO_ORDER}, retained.strange)


def annotated(thing: ApiObject) -> Fault | None:
    """Return which fault the annotation of something routed orders."""
    return thing.meta.fault if isinstance(thing, _ANNOTATED) else None


def next_end(snapshot: Snapshot) -> str:
    """Return when the first order is over that is in force and has an end; empty where there is none."""
    ends = [fault.until for fault in filter(None, map(_FAULT, snapshot.services))]
    ends += [fault.until for cluster_object in snapshot.gateway_api if (fault := annotated(cluster_object.object))]
    ends += [timed.until for order in snapshot.overrides.values() for timed in (order.fault, order.down) if timed]
    return min(ends, default="")


def seconds_until(end: str) -> float:
    """Return the seconds from now until an end."""
    return (datetime.fromisoformat(end) - datetime.now(UTC)).total_seconds()


def _without_fault(cluster_object: ObjectOfCluster) -> ObjectOfCluster:
    thing = cluster_object.object
    return (
        cluster_object._replace(object=replace(thing, meta=replace(thing.meta, fault=None)))
        if isinstance(thing, _ANNOTATED)
        else cluster_object
    )


def _read_to_change(path: Path) -> _Retained:
    try:
        return _read(path)
    except ClientError as error:
        why = f"{error}, and what was ordered before would be lost; mend or remove that file, and order again"
        raise OverridesError(f"nothing was ordered: {why}") from error


def _read(path: Path) -> _Retained:
    """Read the file; without one nothing is ordered. Raises ClientError."""
    text = files.read_shared(path, _LARGEST)
    try:
        entries = _entries(json.loads(text or "{}"))
    except (*_MISTAKES, RecursionError):
        raise OverridesError(f"{path} isn't ours, or a newer local-lb's") from None
    overrides = {key: order for key, fields in entries.items() if (order := _order_or_none(fields))}
    return _Retained(overrides, {key: fields for key, fields in entries.items() if key not in overrides})


def _entries(document: JsonObject) -> Mapping[ObjectKey, Any]:
    if document and document.get("version") != FORMAT:
        raise ValueError
    return {ObjectKey.parse(name): fields for name, fields in document.get("orders", {}).items()}


def _strange(path: Path, key: ObjectKey) -> str:
    entry = f"the entry {clipped(str(key))} of {path}; mend or remove it"
    return f"what commands ordered can't be read, and counts as over: {entry}"


def _order_or_none(fields: JsonObject) -> Order | None:
    try:
        return _order(fields)
    except _MISTAKES:
        return None


def _order(fields: JsonObject) -> Order:
    down = _names(fields, "down")
    return Order(
        parse_fault(fields["fault"]) if fields.get("fault") else None,
        _names(fields, "drained"),
        Down(down, str(fields.get("downUntil"))) if down else None,
    )


def _names(fields: JsonObject, name: str) -> frozenset[str]:
    names = fields.get(name, ())
    if not isinstance(names, list | tuple):
        raise ValueError  # noqa: TRY004 - one kind of mistake: the file isn't ours
    return frozenset(map(str, names))


def _fields(order: Order) -> Mapping[str, object]:
    down = {"down": sorted(order.down.names), "downUntil": order.down.until} if order.down else {}
    return {"fault": order.fault.terms if order.fault else "", "drained": sorted(order.drained), **down}


def _write(path: Path, overrides: Mapping[ObjectKey, Order], strange: Mapping[ObjectKey, object]) -> None:
    entries = {**strange, **{key: _fields(order) for key, order in overrides.items()}}
    if not entries:
        files.remove(path)
        return
    packed = {str(key): entries[key] for key in sorted(entries)}
    files.write(path, json.dumps({"version": FORMAT, "orders": packed}, indent=2) + "\n")


def _in_force(overrides: Mapping[ObjectKey, Order], now: str) -> Mapping[ObjectKey, Order]:
    current = {key: order.at(now) for key, order in overrides.items()}
    return {key: order for key, order in current.items() if order != NO_ORDER}
