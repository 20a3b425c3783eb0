"""Our part of a Service's metadata and status: annotations, finalizer, ingress entries, conditions, and their patches.

The finalizer, the entries of `status.loadBalancer` with our addresses (core/v1, with ipMode of KEP-1860), the
conditions with our prefix and one annotation are ours; everything else belongs to other controllers and is written back
as it was read. Every patch carries the resourceVersion that was read, so that it fails (409) after another write. One
function, `differences`, decides whether a patch would change anything, for the provider, which has the Service, and for
the watch, which has its relevant part (`ObservedStatus`).

Not here: the effect of annotations (`planning`), when a status is true (`outputs.status`), requests
(`kubernetes.api.live_object`), and annotations of the API's own (`kubernetes.service_parsing`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, TypeAlias, TypeVar

from msgspec import Struct
from msgspec.structs import asdict, replace

from locallb.config.settings import StatusOrder
from locallb.model.faults import FAULT_ANNOTATION, annotation_problem
from locallb.model.fields import FieldError, JsonObject, at, object_of, objects_of
from locallb.model.identities import KEY_PREFIX, Family, IPAddress, ObjectKind, Uid, place
from locallb.model.objects import ADDRESSES_ANNOTATION, PORTS_ANNOTATION
from locallb.model.reasons import Condition, EntryName, Ingress, IngressPort, Problem, Reason
from locallb.model.snapshot import Access
from locallb.model.texts import any_of, clipped, shown
from locallb.planning.notices import ordered_of
from locallb.planning.planned import Placement, PlannedPort, Rejection

SHARING_ANNOTATION = f"{KEY_PREFIX}sharing-key"
"""Services of one key may share an address; any text."""
BACKENDS_ANNOTATION = f"{KEY_PREFIX}backends"
"""Where connections go first: `auto`, `pods` or `nodePorts`."""
PROXY_PROTOCOL_ANNOTATION = f"{KEY_PREFIX}proxy-protocol"
"""The PROXY protocol towards backends: `v1` or `v2`."""
NAME_IN_STATUS_ANNOTATION = f"{KEY_PREFIX}name-in-status"
"""Whether the status has a name next to each address: `true` or `false`."""
_OURS = (
    *(ADDRESSES_ANNOTATION, SHARING_ANNOTATION, BACKENDS_ANNOTATION, PROXY_PROTOCOL_ANNOTATION),
    *(FAULT_ANNOTATION, NAME_IN_STATUS_ANNOTATION),
)


class YesOrNo(StrEnum):
    """Value of a yes-or-no annotation."""

    YES = "true"
    NO = "false"


_Word = TypeVar("_Word", bound=StrEnum)


def annotation_path(name: str) -> str:
    """Return how a message names an annotation."""
    return f'metadata.annotations["{name}"]'


def chosen(annotations: Mapping[str, str], name: str, terms: type[_Word]) -> _Word | None:
    """Parse an annotation with one of `terms`; None if it is absent. Raises FieldError for anything else."""
    if name not in annotations:
        return None
    value = annotations[name].strip()
    if value not in list(terms):
        raise FieldError(f"{annotation_path(name)} is {shown(value)}; use {any_of(terms)}, or remove the annotation")
    return terms(value)


def unread_annotations(data: Mapping[object, object]) -> tuple[str, ...]:
    """Return sentences about unknown annotations that look like ours: they are misspelt."""
    names = object_of(at(data, "metadata", "annotations"))
    misspelt = tuple(
        f"the annotation {clipped(name)} is unknown; use {any_of(_OURS)}, or remove it"
        for name in names
        if isinstance(name, str) and name.startswith(KEY_PREFIX) and name not in {*_OURS, PORTS_ANNOTATION}
    )
    unusable = annotation_problem(names, routed=False)
    return (*misspelt, unusable) if unusable else misspelt


MAPPED = "Loopback"
"""The reason of the condition for mapped ports; its message is `80/TCP=127.0.0.1:18080`, comma-separated."""
LONGEST_MESSAGE = 1024
"""Characters of a condition's message."""
CONDITION_NOT_AN_ERROR = frozenset({Reason.NO_BACKENDS})
"""A port without backends is reported by condition and event; the port itself has no error."""


def published_in(planned: Placement | Rejection) -> Access | None:
    """Return the cluster of a Service with a status to publish; None where there is none, and for other kinds."""
    return planned.access if planned.key.kind is ObjectKind.SERVICE else None


def publication(planned: Placement | Rejection) -> Published:
    """Return our complete part of a Service's desired status.

    One ingress entry for each address, every port in each, in the order that the stack says.
    """
    if isinstance(planned, Rejection):
        return _not_serving([planned.problem])
    if planned.withdrawn:
        return _not_serving([planned.withdrawn])
    ingress = tuple(_entry(planned, address) for address in _ordered(planned))
    problems = [problem for port in planned.ports if (problem := port.problem or port.unanswered)]
    details = (*_mapping_events(planned), *_override_events(planned))
    if not problems:
        return Published(ingress, (SERVED, *details))
    return Published(ingress, (*_not_serving(problems, ingress).conditions, *details))


def _mapping_events(placement: Placement) -> Iterator[Condition]:
    """Return where clients find its ports, which their entries can't say."""
    addresses = _ordered(placement)
    places = [f"{port.port}/{port.protocol}={place(at, port.number)}" for port in placement.mapped for at in addresses]
    if places:
        yield Condition(PORT_MAPPING, "True", MAPPED, ",".join(places))


def _override_events(placement: Placement) -> Iterator[Condition]:
    """Return conditions for ordered faults, so that users don't search for their cause."""
    for notice in ordered_of(placement.notices):
        yield Condition(f"{KEY_PREFIX}{notice.reason}", "True", notice.reason, notice.message[:LONGEST_MESSAGE])


def _ordered(placement: Placement) -> Sequence[IPAddress]:
    if placement.status_order is StatusOrder.IPV4_FIRST:
        return sorted(placement.addresses, key=lambda address: address.version)
    return placement.addresses


def _not_serving(problems: Sequence[Problem], ingress: tuple[Ingress, ...] = ()) -> Published:
    """Return the status of a Service that isn't served, at least in part: the first reason, and all sentences."""
    sentences = "; ".join(dict.fromkeys(problem.message for problem in problems))[:LONGEST_MESSAGE]
    return Published(ingress, (Condition(SERVING, "False", problems[0].reason, sentences),))


def _entry(placement: Placement, address: IPAddress) -> Ingress:
    ports = (
        IngressPort(planned.port.port, str(planned.port.protocol), _error(planned, address))
        for planned in placement.ports
    )
    return Ingress(str(address), str(placement.ip_mode), tuple(ports), EntryName(placement.hostname))


def _error(planned: PlannedPort, address: IPAddress) -> str:
    """Return why the port isn't served at the address; empty where it is, or where only backends are missing."""
    problem = planned.problem
    return f"{KEY_PREFIX}{problem.reason}" if problem and _is_error(planned, problem, address) else ""


def _is_error(planned: PlannedPort, problem: Problem, address: IPAddress) -> bool:
    served = {Family.of(listener.address) for listener in planned.listeners}
    return problem.reason not in CONDITION_NOT_AN_ERROR and Family.of(address) not in served


FINALIZER = "service.kubernetes.io/load-balancer-cleanup"
"""Upstream's finalizer of load balancers: the Service stays until it is no longer served."""
SERVING = f"{KEY_PREFIX}Serving"
"""The condition that reports whether every port serves, and the reason if not."""
SERVED = Condition(SERVING, "True", "Serves", "")
WAITING = "Waiting"
"""The reason of the condition, `Unknown`, until backends have taken connections for the first time."""
PORT_MAPPING = f"{KEY_PREFIX}PortMapping"
"""The condition that reports where clients find ports on an address that all Services share."""
Live: TypeAlias = JsonObject
"""A Service as the API gives it."""
_CONDITION = Condition.__struct_fields__


class Published(Struct, frozen=True):
    """Our part of a Service's status."""

    ingress: tuple[Ingress, ...] = ()
    conditions: tuple[Condition, ...] = ()

    @property
    def mapped(self) -> str:
        """The text of the annotation; empty if it must be absent."""
        return next((condition.message for condition in self.conditions if condition.type == PORT_MAPPING), "")


NOTHING = Published()


def awaiting(published: Published, why: str) -> Published:
    """Return it while it isn't known yet whether it serves."""
    waits = Condition(SERVING, "Unknown", WAITING, why)
    conditions = tuple(waits if condition == SERVED else condition for condition in published.conditions)
    return replace(published, conditions=conditions)


class ObservedStatus(Struct, frozen=True):
    """Observed status of a Service, as far as it is ours to write."""

    claimed: bool = False
    """Our finalizer is on it."""
    ingress: tuple[Ingress, ...] = ()
    """All entries, also of other controllers."""
    conditions: tuple[Condition, ...] = ()
    """Ours."""
    mapped: str = ""
    """Our annotation about ports."""

    @property
    def serving(self) -> Condition | None:
        return next((condition for condition in self.conditions if condition.type == SERVING), None)


def observed_status(live: Mapping[Any, Any]) -> ObservedStatus:
    """Parse a Service's status. It is untrusted: invalid entries are left out. Never raises."""
    metadata, status = object_of(live.get("metadata")), object_of(live.get("status"))
    entries = objects_of(at(status, "loadBalancer", "ingress"))
    conditions = objects_of(status.get("conditions"))
    finalizers = metadata.get("finalizers")
    return ObservedStatus(
        isinstance(finalizers, list | tuple) and FINALIZER in finalizers,
        tuple(_status_entry(entry) for entry in entries),
        _ours(conditions),
        str(at(metadata, "annotations", PORTS_ANNOTATION) or ""),
    )


def differences(
    observed: ObservedStatus, ours: Collection[str], wanted: Published, *, alone: bool = False
) -> tuple[str, ...]:
    """Name the parts a patch would change: addresses, ipMode, hostname, ports, conditions, annotation; empty if none.

    Entries of other controllers don't count, in any position. The arguments are those of `publishing`.
    """
    mine = {*ours, *(entry.ip for entry in wanted.ingress)}
    stated = [entry for entry in observed.ingress if alone or entry.ip in mine]
    same = [entry.ip for entry in stated] == [entry.ip for entry in wanted.ingress]
    pairs = list(zip(stated, wanted.ingress, strict=True)) if same else []
    differing = {
        "addresses": not same,
        # An API server that is too old for it doesn't keep the field.
        "ipMode": any(is_.mode not in {"", must.mode} for is_, must in pairs),
        "hostname": any(is_.named != must.named for is_, must in pairs),
        "ports": any(is_.ports != must.ports for is_, must in pairs),
        "conditions": _typed(observed.conditions) != _typed(wanted.conditions),
        "annotation": observed.mapped != wanted.mapped,
    }
    return tuple(name for name, differs in differing.items() if differs)


def is_it(live: Live, uid: Uid) -> bool:
    """Return whether this is the very Service: the same name with another uid is another one."""
    return bool(live["metadata"].get("uid") == uid)


def is_deleted(live: Live) -> bool:
    """Return whether it is on its way out and waits for finalizers only."""
    return live["metadata"].get("deletionTimestamp") is not None


def has_finalizer(live: Live) -> bool:
    return FINALIZER in _finalizers(live)


def claiming(live: Live) -> Mapping[str, object] | None:
    """Make the patch that adds our finalizer; None if it exists."""
    return None if has_finalizer(live) else _patch(live, finalizers=[*_finalizers(live), FINALIZER])


def releasing(live: Live) -> Mapping[str, object] | None:
    """Make the patch that removes our finalizer; None if it is absent."""
    if not has_finalizer(live):
        return None
    return _patch(live, finalizers=[finalizer for finalizer in _finalizers(live) if finalizer != FINALIZER])


def publishing(
    live: Live, ours: Collection[str], wanted: Published, now: str, *, alone: bool = False
) -> Mapping[str, object] | None:
    """Make the patch that replaces our part of the status by `wanted`; None if nothing would change.

    Args:
        live: the Service as it is.
        ours: addresses that we published before; those of `wanted` count as well.
        wanted: the desired status; NOTHING withdraws it.
        now: the time, RFC 3339, for conditions that change their status.
        alone: remove entries of other controllers; their conditions stay in any case.
    """
    if not differences(observed_status(live), ours, wanted, alone=alone):
        return None
    mine = {*ours, *(entry.ip for entry in wanted.ingress)}
    theirs = [] if alone else [entry for entry in _ingress(live) if entry.get("ip") not in mine]
    ingress = [*map(_body, wanted.ingress), *theirs]
    conditions = [
        *(condition for condition in _conditions(live) if not _is_ours(condition)),
        *(_dated(condition, live, now) for condition in wanted.conditions),
    ]
    status = {"loadBalancer": {"ingress": ingress or None}, "conditions": conditions or None}
    stated = {"annotations": {PORTS_ANNOTATION: wanted.mapped or None}}
    metadata = stated if observed_status(live).mapped != wanted.mapped else {}
    return {**_patch(live, **metadata), "status": status}


def published(live: Live, ours: Collection[str] | None) -> Published:
    """Read what the status says of ours: entries of the addresses `ours` (None: all), conditions with our prefix.

    Of mapped ports it says what condition and annotation agree on.
    """
    entries = [
        _status_entry({**entry, "ip": entry.get("ip") or entry.get("hostname")})
        for entry in _ingress(live)
        if ours is None or entry.get("ip") in set(ours)
    ]
    at = observed_status(live).mapped
    stated = (
        condition for condition in _ours(_conditions(live)) if condition.type != PORT_MAPPING or condition.message == at
    )
    return Published(tuple(entries), tuple(stated))


def _patch(live: Live, **metadata: object) -> Mapping[str, object]:
    return {"metadata": {"resourceVersion": live["metadata"]["resourceVersion"], **metadata}}


def _body(entry: Ingress) -> Mapping[str, object]:
    """Write an entry as the API has it: a port that is served has no error."""
    ports = [{name: value for name, value in asdict(port).items() if value != ""} for port in entry.ports]
    named = {"hostname": entry.named.hostname} if entry.named.hostname else {}
    return {"ip": entry.ip, **named, "ipMode": entry.mode, "ports": ports}


def _dated(condition: Condition, live: Live, now: str) -> Mapping[str, str]:
    """Add the time of the last transition: now, unless the status is the same as before."""
    before: JsonObject = {str(existing.get("type")): existing for existing in _conditions(live)}.get(condition.type, {})
    same = before.get("status") == condition.status and before.get("lastTransitionTime")
    return {**asdict(condition), "lastTransitionTime": str(before["lastTransitionTime"]) if same else now}


def _typed(conditions: Iterable[Condition]) -> Mapping[str, Condition]:
    return {condition.type: condition for condition in conditions}


def _is_ours(condition: JsonObject) -> bool:
    return str(condition.get("type")).startswith(KEY_PREFIX)


def _ours(conditions: Iterable[JsonObject]) -> tuple[Condition, ...]:
    return tuple(
        Condition(*(str(condition.get(name) or "") for name in _CONDITION))
        for condition in conditions
        if _is_ours(condition)
    )


def _finalizers(live: Live) -> list[str]:
    return list(live["metadata"].get("finalizers") or ())


def _ingress(live: Live) -> list[JsonObject]:
    return list(((live.get("status") or {}).get("loadBalancer") or {}).get("ingress") or ())


def _conditions(live: Live) -> list[JsonObject]:
    return list((live.get("status") or {}).get("conditions") or ())


def _status_entry(raw: JsonObject) -> Ingress:
    """Read an ingress entry in the fields that we write."""
    ports = (
        IngressPort(_number(port.get("port")), str(port.get("protocol") or ""), str(port.get("error") or ""))
        for port in objects_of(raw.get("ports"))
    )
    named = EntryName(str(raw.get("hostname") or ""))
    return Ingress(str(raw.get("ip") or ""), str(raw.get("ipMode") or ""), tuple(ports), named)


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0
