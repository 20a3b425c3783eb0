"""Our part of the observed status of a Gateway API object or an Ingress, and how it differs from the desired one.

Anyone may have written it: invalid parts are left out, and so are those of other controllers, so that they wake no
loop. Not here: the patch that repairs it (`patch`), and when that is sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field

from locallb.gateway.kinds import KINDS, ApiKind, kind_of_object
from locallb.gateway.parsing.gateways import parse_meta
from locallb.gateway.status.patch import ENTRIES, OURS, Status, differences, is_ours
from locallb.model.fields import object_of, objects_of
from locallb.model.identities import ClusterName, ObjectKey, ObjectKind

_REPORTED = {
    **{kind.name: ObjectKind(kind.plural) for kind in KINDS.values() if kind.plural in set(ObjectKind)},
    "Ingress": ObjectKind.INGRESS,
}
"""Kinds with a status that we write."""
_FIELDS = ("addresses", "attachedListenerSets", "supportedFeatures")
_ADDRESSES = "loadBalancer"


class ObservedRouteStatus(Struct, frozen=True):
    """Our part of a status."""

    status: Status = field(default_factory=dict)

    def differences(self, wanted: Status, generation: int) -> tuple[str, ...]:
        """Name the fields that an update would change, by the same decision that the update makes."""
        return differences(self.status, wanted, generation)


def reported_kind(name: str) -> ObjectKind | None:
    """Return the object kind of the API's kind `name` if its status is written; None for all others."""
    return _REPORTED.get(name)


def observed_statuses(
    cluster: ClusterName, document: Mapping[Any, Any], kinds: Mapping[str, ApiKind] = KINDS
) -> tuple[tuple[ObjectKey, ObservedRouteStatus], ...]:
    """Return an object's observed status, if it is of one of these kinds and its status is written. Never raises."""
    kind = kind_of_object(document, kinds)
    object_kind = reported_kind(kind.name) if kind else None
    meta = parse_meta(document, namespaced=kind.namespaced) if kind else None
    if not object_kind or not meta:
        return ()
    return (
        (ObjectKey(cluster, *meta.key, object_kind), ObservedRouteStatus(_ours(object_of(document.get("status"))))),
    )


def _ours(status: Status) -> Status:
    """Return our part of a status, in shapes that the patch understands."""
    retained = {key: status[key] for key in _FIELDS if key in status}
    if _ADDRESSES in status:
        retained[_ADDRESSES] = object_of(status[_ADDRESSES])
    if "conditions" in status:
        retained["conditions"] = _conditions(status)
    if "listeners" in status:
        retained["listeners"] = [
            _entry(entry) for entry in objects_of(status["listeners"]) if isinstance(entry.get("name"), str)
        ]
    for key in ENTRIES:
        if key in status:
            retained[key] = [_entry(entry) for entry in objects_of(status[key]) if is_ours(entry)]
    return retained


def _entry(entry: Status) -> Status:
    return {**entry, "conditions": _conditions(entry)}


def _conditions(status: Status) -> list[Status]:
    return [
        _condition(condition)
        for condition in objects_of(status.get("conditions"))
        if str(condition.get("type")) in OURS
    ]


def _condition(stated: Status) -> Status:
    generation = stated.get("observedGeneration")
    return {**stated, "observedGeneration": generation if isinstance(generation, int) else 0}
