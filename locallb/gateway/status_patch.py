"""Our part of the status of a Gateway API object or an Ingress: as observed, and the patch to the desired one.

Other controllers write to the same status. Their conditions, parents and ancestors stay unchanged and in place, and a
status gets one verdict for counting, and its new refusals for events.

Not here: the desired content (`statuses`), and the requests (`kubernetes.api.live_object`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from functools import lru_cache
from typing import Any

from msgspec import Struct, field

from locallb.gateway.kinds import KINDS, ApiKind, kind_of_object
from locallb.gateway.parsing import parse_meta
from locallb.model.fields import JsonObject, object_of, objects_of
from locallb.model.gateway_objects import CONTROLLER
from locallb.model.identities import ClusterName, ObjectKey, ObjectKind
from locallb.model.reasons import ACCEPTED, DRAINED, FAULT_ORDERED, PARTIALLY_INVALID, PROGRAMMED, RESOLVED

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
    """Return an object's observed status, if it is of one of these kinds and its status is written. Never raises.

    Anyone may have written it: invalid parts are left out, and so are those of other controllers, so that they trigger
    no pass of the loop.
    """
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


Live = JsonObject
Status = JsonObject
_FEATURES = "supportedFeatures"
ENTRIES = {"parents": "parentRef", "ancestors": "ancestorRef"}
"""Lists that many controllers write entries into, of routes and of policies, and what each entry is about."""
_MAX_ANCESTORS = 16
"""Limit of ancestors, as in the API."""


def status_patch(live: Live, wanted: Status, generation: int, now: str) -> Mapping[str, object] | None:
    """Make the patch; None where there is nothing to write.

    A condition keeps its time as long as its status is the same, and a condition of a newer generation is never
    changed.

    Args:
        live: the object as it is.
        wanted: the desired content of our part; empty withdraws what we wrote as the controller of routes.
        generation: of the object that `wanted` was made from.
        now: the time, RFC 3339.
    """
    stated = live.get("status") or {}
    if not _differences(stated, wanted, generation, now):
        return None
    return {
        "metadata": {"resourceVersion": live["metadata"]["resourceVersion"]},
        "status": _status(stated, wanted, generation, now),
    }


def differences(stated: Status, wanted: Status, generation: int) -> tuple[str, ...]:
    """Name the fields that say something else, as far as the definition of the kind has a place for them."""
    possible = {key: value for key, value in wanted.items() if key != _FEATURES or key in stated}
    return _differences(stated, possible, generation)


def _differences(stated: Status, wanted: Status, generation: int, now: str = "") -> tuple[str, ...]:
    """Name the fields that a patch would change."""
    if is_newer(stated, generation):
        return ()
    must = _status(stated, wanted, generation, now)
    # Absent and empty are the same: older definitions of a kind have no place for some of it.
    return tuple(key for key, value in must.items() if not _is_same(stated.get(key), value))


def _status(stated: Status, wanted: Status, generation: int, now: str) -> Status:
    if not wanted:
        return {key: [entry for entry in stated[key] if not is_ours(entry)] for key in ENTRIES if key in stated}
    return {key: _merged(key, stated.get(key), value, generation, now) for key, value in wanted.items()}


def _is_same(stated: Any, wanted: Any) -> bool:  # noqa: ANN401 - JSON
    if isinstance(wanted, dict):
        return all((dict(stated or {}).get(key) or type(value)()) == value for key, value in wanted.items())
    return bool((stated or type(wanted)()) == wanted)


def contains(live: Live, wanted: Status, generation: int) -> bool:
    """Return whether an object's status is as desired."""
    return not differences(live.get("status") or {}, wanted, generation)


def is_stated(live: Live) -> bool:
    """Return whether the status has anything that we may have written, except that it waits for a controller."""
    stated = live.get("status") or {}
    conditions = stated.get("conditions") or ()
    has_conditions = any(
        condition.get("type") in OURS and condition.get("status") != "Unknown" for condition in conditions
    )
    is_served = bool((stated.get("loadBalancer") or {}).get("ingress"))
    return has_conditions or is_served or any(map(is_ours, _entries(stated)))


def withdrawn(stated: Status) -> Status:
    """Return the status that replaces ours when it is withdrawn: as of a new object, waiting for a controller."""
    if not ENTRIES.keys().isdisjoint(stated):
        return {}
    if "loadBalancer" in stated:
        return {"loadBalancer": {"ingress": []}}
    waiting = {"status": "Unknown", "reason": "Pending", "message": "Waiting for controller"}
    conditions = [
        {"type": condition["type"], **waiting} for condition in stated["conditions"] if condition["type"] in _WAITING
    ]
    none = {"addresses": [], "listeners": [], "attachedListenerSets": 0, _FEATURES: []}
    return {"conditions": conditions, **{key: value for key, value in none.items() if key in stated}}


def is_newer(stated: Status, generation: int) -> bool:
    """Return whether any condition of ours was written for a newer generation than we know."""
    mine = filter(is_ours, _entries(stated))
    conditions = [
        *(stated.get("conditions") or ()),
        *(condition for entry in mine for condition in entry.get("conditions") or ()),
    ]
    return any(int(condition.get("observedGeneration") or 0) > generation for condition in conditions)


def _merged(key: str, stated: Any, wanted: Any, generation: int, now: str) -> Any:  # noqa: ANN401 - JSON
    if key == "conditions":
        return _patched_conditions(stated or (), wanted, generation, now)
    if key == "listeners":
        before = {entry.get("name"): entry for entry in stated or ()}
        return [_patched_entry(before.get(entry["name"], {}), entry, generation, now) for entry in wanted]
    if key in ENTRIES:
        merged = _shared(ENTRIES[key], stated or (), wanted, generation, now)
        return merged[:_MAX_ANCESTORS] if key == "ancestors" else merged
    return wanted


def _patched_entry(before: Status, wanted: Status, generation: int, now: str) -> Status:
    conditions = _patched_conditions(before.get("conditions") or (), wanted["conditions"], generation, now)
    return {**wanted, "conditions": conditions}


def _shared(about: str, stated: Iterable[Status], wanted: Iterable[Status], generation: int, now: str) -> list[Status]:
    """Replace our entries; those of others stay where they are."""
    before = list(stated)
    ours = {_named(about, entry): entry for entry in before if is_ours(entry)}
    mine = {
        (name := _named(about, entry)): _patched_entry(ours.get(name, {}), entry, generation, now) for entry in wanted
    }
    retained = [mine.pop(_named(about, entry), None) if is_ours(entry) else entry for entry in before]
    return [*(entry for entry in retained if entry), *mine.values()]


def is_ours(entry: Status) -> bool:
    """Return whether an entry was written by our controller."""
    return entry.get("controllerName") == CONTROLLER


def _named(about: str, entry: Status) -> str:
    return json.dumps(entry.get(about), sort_keys=True)


def _entries(stated: Status) -> Iterator[Status]:
    return (entry for key in ENTRIES for entry in stated.get(key) or ())


def _patched_conditions(stated: Iterable[Status], wanted: Iterable[Status], generation: int, now: str) -> list[Status]:
    before = {str(condition.get("type")): condition for condition in stated}
    mine = {
        condition["type"]: _dated(before.get(condition["type"], {}), condition, generation, now) for condition in wanted
    }
    retained = [mine.pop(kind, None) if kind in OURS else condition for kind, condition in before.items()]
    return [*(condition for condition in retained if condition), *mine.values()]


_WAITING = ("Accepted", "Programmed")
"""Types that objects have before a controller looks at them."""
OURS = frozenset(
    {
        *_WAITING,
        "ResolvedRefs",
        "Conflicted",
        "PartiallyInvalid",
        "OverlappingTLSConfig",
        "InsecureFrontendValidationMode",
        FAULT_ORDERED,
        DRAINED,
    }
)
"""Condition types that an object's controller owns: ones that we don't set are removed."""


def _dated(before: Status, wanted: Status, generation: int, now: str) -> Status:
    """Add the generation, and the time of the last transition: now, unless the status is the same as before."""
    same = before.get("status") == wanted["status"] and before.get("lastTransitionTime")
    return {**wanted, "lastTransitionTime": same or now, "observedGeneration": generation}


_MAX = 10_000
"""Limit of statuses with a cached verdict."""


class StatusVerdict(StrEnum):
    """The overall result in an object's status."""

    ACCEPTED = "accepted"
    PARTLY = "partly"
    """It is accepted; a listener, a rule or a reference of it isn't."""
    REFUSED = "refused"
    """An entry of it is not accepted or not programmed."""


@lru_cache(_MAX)  # to parse a text takes long, and whoever shows statuses comes with the same ones again
def verdict_of(status: str) -> StatusVerdict:
    """Return the overall result of a status, given as JSON."""
    stated: JsonObject = json.loads(status)
    of_object = _verdict_entries(stated)
    if any(_is(entry, kind, "False") for entry in of_object for kind in (ACCEPTED, PROGRAMMED)):
        return StatusVerdict.REFUSED
    return (
        StatusVerdict.PARTLY
        if any(map(_is_partly, [*of_object, *stated.get("listeners", ())]))
        else StatusVerdict.ACCEPTED
    )


def _is_partly(entry: JsonObject) -> bool:
    wrong = any(_is(entry, kind, "False") for kind in (ACCEPTED, PROGRAMMED, RESOLVED))
    return wrong or _is(entry, PARTIALLY_INVALID, "True")


def _is(entry: JsonObject, kind: str, status: str) -> bool:
    return any((stated["type"], stated["status"]) == (kind, status) for stated in _verdict_conditions(entry))


def _verdict_conditions(entry: JsonObject) -> Iterator[Mapping[str, str]]:
    yield from entry.get("conditions", ())


def bad_news(before: Status, wanted: Status) -> tuple[tuple[str, str], ...]:
    """Return reason and sentence of all new refusals, each once; `before` is the earlier status."""
    existing = frozenset(_refused(before))
    return tuple(dict.fromkeys(refusal for refusal in _refused(wanted) if refusal not in existing))


def _refused(status: Status) -> Iterator[tuple[str, str]]:
    for entry in (*filter(_may_be_ours, _verdict_entries(status)), *(status.get("listeners") or ())):
        of = f"listener {entry['name']}: " if "name" in entry else ""
        for stated in entry.get("conditions") or ():
            kind, is_true = stated.get("type"), stated.get("status")
            if (kind in _WANTED and is_true == "False") or (kind == PARTIALLY_INVALID and is_true == "True"):
                yield str(stated.get("reason")), f"{of}{stated.get('message')}"


_WANTED = frozenset({ACCEPTED, PROGRAMMED, RESOLVED})


def _verdict_entries(status: Status) -> list[Status]:
    """Return whatever has conditions of the whole object."""
    return [status, *(entry for key in ENTRIES for entry in status.get(key) or ())]


def _may_be_ours(entry: Status) -> bool:
    return "controllerName" not in entry or is_ours(entry)
