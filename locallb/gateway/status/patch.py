"""The patch from an object's status to the desired one; it keeps entries of other controllers. None if nothing differs.

Foreign conditions, parents and ancestors stay unchanged and in place. A condition keeps its time as long as its status
is the same, and a condition of a newer generation is never changed. Not here: the desired content.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from locallb.model.fields import JsonObject
from locallb.model.gateway.objects import CONTROLLER

Live = JsonObject
Status = JsonObject
_FEATURES = "supportedFeatures"
ENTRIES = {"parents": "parentRef", "ancestors": "ancestorRef"}
"""Lists that many controllers write entries into, of routes and of policies, and what each entry is about."""
_MAX_ANCESTORS = 16
"""Limit of ancestors, as in the API."""


def status_patch(live: Live, wanted: Status, generation: int, now: str) -> Mapping[str, object] | None:
    """Make the patch; None where there is nothing to write.

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
        return _conditions(stated or (), wanted, generation, now)
    if key == "listeners":
        before = {entry.get("name"): entry for entry in stated or ()}
        return [_entry(before.get(entry["name"], {}), entry, generation, now) for entry in wanted]
    if key in ENTRIES:
        merged = _shared(ENTRIES[key], stated or (), wanted, generation, now)
        return merged[:_MAX_ANCESTORS] if key == "ancestors" else merged
    return wanted


def _entry(before: Status, wanted: Status, generation: int, now: str) -> Status:
    conditions = _conditions(before.get("conditions") or (), wanted["conditions"], generation, now)
    return {**wanted, "conditions": conditions}


def _shared(about: str, stated: Iterable[Status], wanted: Iterable[Status], generation: int, now: str) -> list[Status]:
    """Replace our entries; those of others stay where they are."""
    before = list(stated)
    ours = {_named(about, entry): entry for entry in before if is_ours(entry)}
    mine = {(name := _named(about, entry)): _entry(ours.get(name, {}), entry, generation, now) for entry in wanted}
    retained = [mine.pop(_named(about, entry), None) if is_ours(entry) else entry for entry in before]
    return [*(entry for entry in retained if entry), *mine.values()]


def is_ours(entry: Status) -> bool:
    """Return whether an entry was written by our controller."""
    return entry.get("controllerName") == CONTROLLER


def _named(about: str, entry: Status) -> str:
    return json.dumps(entry.get(about), sort_keys=True)


def _entries(stated: Status) -> Iterator[Status]:
    return (entry for key in ENTRIES for entry in stated.get(key) or ())


def _conditions(stated: Iterable[Status], wanted: Iterable[Status], generation: int, now: str) -> list[Status]:
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
        "local-lb.dev/FaultOrdered",
        "local-lb.dev/Drained",
    }
)
"""Condition types that an object's controller owns: ones that we don't set are removed."""


def _dated(before: Status, wanted: Status, generation: int, now: str) -> Status:
    """Add the generation, and the time of the last transition: now, unless the status is the same as before."""
    same = before.get("status") == wanted["status"] and before.get("lastTransitionTime")
    return {**wanted, "lastTransitionTime": same or now, "observedGeneration": generation}
