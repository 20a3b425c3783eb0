"""What of a live Service is ours to write, and the patch that makes it so.

The finalizer, the ingress entries with our addresses and the conditions with our prefix are ours; everything else in
metadata and status belongs to others and is written back as it was read. Every patch carries the resourceVersion that
was read, so that it fails (409) where somebody wrote meanwhile. Whether a patch would change anything is one decision
(`differences`), for the provider, which has the Service, and for the watch, which has what matters of it (`Standing`).
Not here: when what is true, and who sends it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from locallb.model.identities import Uid

FINALIZER = "service.kubernetes.io/load-balancer-cleanup"
"""Upstream's finalizer of load balancers: the Service stays until everything that serves it is gone."""
DOMAIN = "local-lb.dev"
SERVING = f"{DOMAIN}/Serving"
"""The condition that tells whether every port serves, and why not."""
Live: TypeAlias = Mapping[str, Any]
"""A Service as the API gives it."""
Entry: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Published:
    """What we say in the status of a Service."""

    ingress: Sequence[Entry]
    """One entry an address, complete."""
    conditions: Sequence[Mapping[str, str]]
    """Type, status, reason and message of each."""


NOTHING = Published((), ())


@dataclass(frozen=True, slots=True)
class Standing:
    """What a Service says of what is ours to write."""

    claimed: bool = False
    """Our finalizer is on it."""
    ingress: tuple[Entry, ...] = ()
    """Everybody's entries, in the fields that we write."""
    conditions: tuple[Mapping[str, str], ...] = ()
    """Ours, without dates."""


def standing(live: Mapping[Any, Any]) -> Standing:
    """Read what a Service says. Anybody may have written it: what makes no sense is left out. Never raises."""
    metadata, status = _object(live.get("metadata")), _object(live.get("status"))
    entries = _objects(_object(status.get("loadBalancer")).get("ingress"))
    conditions = [one for one in _objects(status.get("conditions")) if _is_ours(one)]
    finalizers = metadata.get("finalizers")
    return Standing(
        isinstance(finalizers, list | tuple) and FINALIZER in finalizers,
        tuple(_entry(one) for one in entries),
        tuple(_texts(one, "type", "status", "reason", "message") for one in conditions),
    )


def differences(seen: Standing, ours: Collection[str], wanted: Published, *, alone: bool = False) -> tuple[str, ...]:
    """Name what a patch would change: addresses, ipMode, ports, conditions. None of it: there is nothing to write.

    What others have beside ours is theirs, wherever it stands. The arguments are those of `publishing`.
    """
    mine = {*ours, *(entry["ip"] for entry in wanted.ingress)}
    said = [entry for entry in seen.ingress if alone or entry["ip"] in mine]
    same = [entry["ip"] for entry in said] == [entry["ip"] for entry in wanted.ingress]
    pairs = list(zip(said, map(_entry, wanted.ingress), strict=True)) if same else []
    differing = {
        "addresses": not same,
        # An API server that is too old for it doesn't keep the field.
        "ipMode": any(one["ipMode"] not in {"", other["ipMode"]} for one, other in pairs),
        "ports": any(one["ports"] != other["ports"] for one, other in pairs),
        "conditions": _by_type(seen.conditions) != _by_type(wanted.conditions),
    }
    return tuple(name for name, differs in differing.items() if differs)


def is_it(live: Live, uid: Uid) -> bool:
    """Return whether this is the very Service: the same name with another uid is another one."""
    return bool(live["metadata"].get("uid") == uid)


def is_deleted(live: Live) -> bool:
    """Return whether it is on its way out and waits for finalizers only."""
    return live["metadata"].get("deletionTimestamp") is not None


def has_finalizer(live: Live) -> bool:
    """Return whether our finalizer is on it."""
    return FINALIZER in _finalizers(live)


def claiming(live: Live) -> Mapping[str, object] | None:
    """Make the patch that adds our finalizer; None if it is there."""
    return None if has_finalizer(live) else _patch(live, finalizers=[*_finalizers(live), FINALIZER])


def releasing(live: Live) -> Mapping[str, object] | None:
    """Make the patch that takes our finalizer away; None if it isn't there."""
    if not has_finalizer(live):
        return None
    return _patch(live, finalizers=[one for one in _finalizers(live) if one != FINALIZER])


def publishing(
    live: Live, ours: Collection[str], wanted: Published, now: str, *, alone: bool = False
) -> Mapping[str, object] | None:
    """Make the patch after which the status says `wanted`, in place of all that was ours; None if it says so.

    Args:
        live: the Service as it is.
        ours: addresses that we published before; those of `wanted` count as well.
        wanted: what it shall say; NOTHING withdraws it.
        now: the time, RFC 3339, for conditions that change their status.
        alone: entries of others go; conditions of others stay in any case.

    """
    if not differences(standing(live), ours, wanted, alone=alone):
        return None
    mine = {*ours, *(entry["ip"] for entry in wanted.ingress)}
    theirs = [] if alone else [entry for entry in _ingress(live) if entry.get("ip") not in mine]
    ingress = [*wanted.ingress, *theirs]
    conditions = [
        *(one for one in _conditions(live) if not _is_ours(one)),
        *(_dated(one, live, now) for one in wanted.conditions),
    ]
    status = {"loadBalancer": {"ingress": ingress or None}, "conditions": conditions or None}
    return {**_patch(live), "status": status}


def published(live: Live, ours: Collection[str] | None) -> Published:
    """Read what the status says of ours: entries of the addresses `ours` (None: all), conditions with our prefix."""
    conditions = [
        {field: str(one.get(field) or "") for field in ("type", "status", "reason", "message")}
        for one in _conditions(live)
        if _is_ours(one)
    ]
    return Published([one for one in _ingress(live) if ours is None or one.get("ip") in set(ours)], conditions)


def _patch(live: Live, **metadata: object) -> Mapping[str, object]:
    return {"metadata": {"resourceVersion": live["metadata"]["resourceVersion"], **metadata}}


def _dated(condition: Mapping[str, str], live: Live, now: str) -> Mapping[str, str]:
    """Add the time of the last transition: now, unless the status is the same as before."""
    before = _by_type(_conditions(live)).get(condition["type"], {})
    same = before.get("status") == condition["status"] and before.get("lastTransitionTime")
    return {**condition, "lastTransitionTime": str(before["lastTransitionTime"]) if same else now}


def _by_type(conditions: Sequence[Mapping[str, Any]]) -> Mapping[str, Mapping[str, Any]]:
    return {str(one.get("type")): one for one in conditions}


def _is_ours(condition: Mapping[str, Any]) -> bool:
    return str(condition.get("type")).startswith(f"{DOMAIN}/")


def _finalizers(live: Live) -> list[str]:
    return list(live["metadata"].get("finalizers") or ())


def _ingress(live: Live) -> list[Entry]:
    return list(((live.get("status") or {}).get("loadBalancer") or {}).get("ingress") or ())


def _conditions(live: Live) -> list[Mapping[str, Any]]:
    return list((live.get("status") or {}).get("conditions") or ())


def _entry(raw: Mapping[str, Any]) -> Entry:
    """Return an ingress entry in the fields that we write, each with a value."""
    ports = [
        {"port": one.get("port"), "protocol": str(one.get("protocol") or ""), "error": str(one.get("error") or "")}
        for one in _objects(raw.get("ports"))
    ]
    return {**_texts(raw, "ip", "ipMode"), "ports": ports}


def _texts(raw: Mapping[str, Any], *names: str) -> dict[str, str]:
    return {name: str(raw.get(name) or "") for name in names}


def _object(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _objects(value: object) -> list[Mapping[str, Any]]:
    return [one for one in value if isinstance(one, Mapping)] if isinstance(value, list | tuple) else []
