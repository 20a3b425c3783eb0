"""Kubernetes events about an object of a live cluster: the object's identity, the events' content and rate limit.

Events are texts for people (`kubectl describe service`): best effort, removed by the API server after an hour. Lasting
facts are in status and conditions.

Not here: sending events, and the clock (`outputs.events`); lasting facts (`kubernetes.status`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from locallb.gateway.kinds import CLUSTER_SCOPED
from locallb.ingress.parsing import ROUTED_KINDS
from locallb.kubernetes import pod_ranges
from locallb.model.fields import object_of, text_of
from locallb.model.identities import DOMAIN, ObjectKind, Owner
from locallb.model.reasons import (
    INCOMPATIBLE_FILTERS,
    INVALID_ROUTE_KINDS,
    OF_THE_OBJECT,
    UNSUPPORTED,
    Event,
    Problem,
    Reason,
)
from locallb.model.texts import clipped, few
from locallb.planning.planned import Placement, PlannedNews, Rejection

_OF_CLUSTERS = {"Node", "Namespace", *pod_ranges.VERSIONS, *CLUSTER_SCOPED, "IngressClass"}
"""Kinds without a namespace."""


class Identity(Struct, frozen=True, order=True):
    """Name of an object within its cluster, whatever its content; fields that aren't texts are empty."""

    kind: str
    namespace: str
    name: str

    @classmethod
    def of(cls, document: Mapping[object, object]) -> Identity:
        """Return what `document` is called."""
        raw = object_of(document.get("metadata"))
        kind, namespace, name = map(text_of, (document.get("kind"), raw.get("namespace"), raw.get("name")))
        return cls(kind, "" if kind in _OF_CLUSTERS else namespace or "default", name)

    def __str__(self) -> str:
        name = clipped(self.name) or "(no name)"
        return f"{self.kind} {name}" if self.kind in _OF_CLUSTERS else f"{self.kind} {clipped(self.namespace)}/{name}"


NORMAL, WARNING = "Normal", "Warning"
ENSURED = "EnsuredLoadBalancer"
UPDATED = "UpdatedLoadBalancer"
DELETING = "DeletingLoadBalancer"
DELETED = "DeletedLoadBalancer"
FAILED = "SyncLoadBalancerFailed"
UNAVAILABLE = "UnAvailableLoadBalancer"
"""Upstream's reasons, those of k8s.io/cloud-provider's service controller."""
BURST = 25
SECONDS_A_TOKEN = 300
"""Seconds until one more event is allowed for a Service, above the burst: client-go's own limit."""
LONGEST_NOTE, LONGEST_WORD = 1024, 128
"""Bytes of UTF-8 that the API takes as an event's note and as its reporting instance; more is refused as a whole."""
_OF_THE_OBJECT = OF_THE_OBJECT | {INCOMPATIBLE_FILTERS, INVALID_ROUTE_KINDS, UNSUPPORTED}
_LONGEST_NAME = 253
_MAX_PORTS = 10
"""Ports that a note names."""


class EventAllowance(Struct, frozen=True):
    """Remaining events of a Service: a bucket that fills with time."""

    tokens: int = BURST
    since: int = 0
    """Unix seconds of the last token that was counted."""


def placement_events(placement: Placement) -> tuple[Event, ...]:
    """Return the events of a placement: what serves, then what doesn't and why, then its notices."""
    if placement.withdrawn:
        return (_warning(placement.withdrawn),)
    serving = few([port.port.label for port in placement.ports if port.listeners and not port.unanswered], _MAX_PORTS)
    addresses = " and ".join(str(address) for address in placement.addresses)
    events = [Event(NORMAL, ENSURED, f"serves {serving} at {addresses}")] if serving else []
    problems = dict.fromkeys(problem for port in placement.ports if (problem := port.problem or port.unanswered))
    events += [_warning(problem) for problem in problems]
    events += [Event(WARNING, notice.reason, shortened(notice.message)) for notice in placement.notices]
    return tuple(events)


def rejection_events(rejection: Rejection) -> tuple[Event, ...]:
    """Return the events that say why a Service gets nothing."""
    return (_warning(rejection.problem),)


def ingress_events(
    news: PlannedNews, withdrawn: Problem | None = None, unanswered: Iterable[Problem] = ()
) -> tuple[Event, ...]:
    """Return what of an Ingress is served, then what isn't; `unanswered` is why ports that it shares are silent."""
    if withdrawn:
        return (_warning(withdrawn),)
    serving = [Event(NORMAL, ENSURED, shortened(news.serving))] if news.serving else []
    serving += map(_warning, dict.fromkeys(unanswered)) if serving else ()
    refused = (Event(WARNING, UNSUPPORTED, shortened(why)) for why in news.refused)
    return (*serving, *refused, *(Event(WARNING, FAILED, shortened(why)) for why in news.failures))


def may_pass(event: Event) -> bool:
    """Return whether a Warning may end by itself, without a change of its object: by a Service, a Secret, a Node."""
    reason = event.note.partition(":")[0] if event.reason == FAILED else event.reason  # as `_warning` writes it
    return reason not in _OF_THE_OBJECT


def _warning(problem: Problem) -> Event:
    reason = UNAVAILABLE if problem.reason is Reason.NO_BACKENDS else FAILED
    return Event(WARNING, reason, shortened(str(problem)))


def shortened(text: str, maximum: int = LONGEST_NOTE) -> str:
    """Cut a text to `maximum` bytes of UTF-8, between two characters."""
    return text.encode(errors="replace")[:maximum].decode(errors="ignore")


def news(before: Sequence[Event], after: Sequence[Event]) -> tuple[Event, ...]:
    """Return the events that weren't sent yet; a Service that served already and changed is reported as updated."""
    served = any(event.reason == ENSURED for event in before)
    fresh = [event for event in after if event not in before]
    return tuple(
        Event(event.type, UPDATED, event.note) if served and event.reason == ENSURED else event for event in fresh
    )


def spend(allowance: EventAllowance, wanted: int, now: int) -> tuple[int, EventAllowance]:
    """Return how many of `wanted` events may be sent at `now` (Unix seconds), and what is left then."""
    grown = max(0, now - allowance.since) // SECONDS_A_TOKEN
    full = allowance.tokens + grown >= BURST
    tokens = BURST if full else allowance.tokens + grown
    allowed = min(wanted, tokens)
    return allowed, EventAllowance(tokens - allowed, now if full else allowance.since + grown * SECONDS_A_TOKEN)


def event_body(event: Event, owner: Owner, nanoseconds: int, time: str) -> Mapping[str, object]:
    """Write an event for the API.

    Args:
        event: what to tell.
        owner: the object, and which stack tells it.
        nanoseconds: the time since 1970, which makes its name unique.
        time: the same time, RFC 3339 with microseconds.

    """
    mark = hashlib.sha256(f"{owner.uid} {event.reason} {event.note}".encode()).hexdigest()[:8]
    service = owner.service
    api_version, kind = _kind(service.kind)
    return {
        "metadata": {"name": _name(service.name, f".{nanoseconds:x}.{mark}"), "namespace": namespace_of(owner)},
        "eventTime": time,
        "type": event.type,
        "reason": event.reason,
        "action": "Serve",
        "note": shortened(event.note),
        "reportingController": DOMAIN,
        "reportingInstance": shortened(f"{owner.home.project}/{owner.home.stack}", LONGEST_WORD),
        "regarding": {
            "apiVersion": api_version,
            "kind": kind,
            **({"namespace": service.namespace} if service.namespace else {}),
            "name": service.name,
            "uid": owner.uid,
        },
    }


def _name(name: str, end: str) -> str:
    """Name an event: an object's own name may be as long as names may be."""
    return name[: _LONGEST_NAME - len(end)].rstrip(".-") + end


def namespace_of(owner: Owner) -> str:
    """Return where events of an object are: in Kubernetes' default namespace those of objects without one."""
    return owner.service.namespace or "default"


def _kind(kind: ObjectKind) -> tuple[str, str]:
    """Return the apiVersion and the name of a kind."""
    if kind is ObjectKind.SERVICE:
        return "v1", "Service"
    existing = next(routed_kind for routed_kind in ROUTED_KINDS.values() if routed_kind.plural == kind.value)
    return f"{existing.group}/{existing.versions[0]}", existing.name
