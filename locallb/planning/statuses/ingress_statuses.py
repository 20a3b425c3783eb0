"""Statuses and events of Ingresses in live clusters: with the placement that serves them, or with their rejection.

And how any status becomes the input of a resource. Not here: the content of an Ingress's status (`ingress.statuses`),
and Gateway API objects (`gateway_statuses`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from msgspec.structs import replace

from locallb.config.settings import Settings
from locallb.gateway.routes.bound import Bound
from locallb.gateway.status.statuses import ApiStatus
from locallb.ingress.kinds import ROUTED_KINDS
from locallb.ingress.statuses import ingress_statuses, served_text
from locallb.ingress.translation import BoundIngresses, IngressFailure
from locallb.model.gateway.objects import Named
from locallb.model.identities import ClusterName, IPAddress, ObjectKey, ObjectKind, Owner
from locallb.model.objects import ServicePort
from locallb.model.reasons import Problem
from locallb.model.snapshot import Snapshot
from locallb.planning.names import published_hosts
from locallb.planning.planned import Placement, PlannedNews, PlannedStatus, Rejection


def with_ingresses(placement: Placement, bound: Bound | None, snapshot: Snapshot, settings: Settings) -> Placement:
    """Add the statuses and events of Ingresses of a running cluster that are served at these addresses."""
    if not isinstance(bound, BoundIngresses) or not placement.access:
        return placement
    ports = tuple(planned.port for planned in placement.ports if planned.listeners)
    hosts = published_hosts(bound.ingresses, placement, settings.dns)
    statuses = ingress_statuses(bound, placement.addresses, ports, hosts) if ports else ()
    return replace(
        placement,
        statuses=tuple(planned_status(status, placement.key.cluster, snapshot) for status in statuses),
        news=tuple(_news(bound, snapshot, _Outcome(placement.addresses, ports, placement.unreached))),
    )


def with_news(rejection: Rejection, bound: Bound | None, snapshot: Snapshot) -> Rejection:
    """Add the events of Ingresses of a running cluster that get no address."""
    if not isinstance(bound, BoundIngresses) or not rejection.access:
        return rejection
    return replace(rejection, news=tuple(_news(bound, snapshot, _Outcome(why=rejection.problem.message))))


class _Outcome(NamedTuple):
    """Where Ingresses are served, and the Services that this host has no route to; `why` if nowhere."""

    addresses: Sequence[IPAddress] = ()
    ports: Sequence[ServicePort] = ()
    unreached: Mapping[Named, Problem] = MappingProxyType({})
    why: str = ""


def _news(bound: BoundIngresses, snapshot: Snapshot, outcome: _Outcome) -> Iterator[PlannedNews]:
    """Return the events of each Ingress."""
    cluster, failures = bound.key.cluster, dict[Named, list[IngressFailure]]()
    for failure in bound.failures:
        failures.setdefault(failure.of, []).append(failure)
    for ingress in bound.ingresses:
        key = ObjectKey(cluster, *ingress.meta.key, ObjectKind.INGRESS)
        of_it = failures.get(ingress.meta.key, ())
        refused = tuple(failure.message for failure in of_it if failure.is_own)
        services = ingress.services if outcome.unreached else frozenset()
        unreached = sorted(services & outcome.unreached.keys())
        others = (
            *([outcome.why] if outcome.why else []),
            *(failure.message for failure in of_it if not failure.is_own),
            *(str(outcome.unreached[service]) for service in unreached),
        )
        answers = outcome.ports and not (unreached and len(unreached) == len(services))
        is_served = answers and not ingress.problem and ingress.meta.key not in bound.shadowed
        serving = served_text(bound, ingress, outcome.addresses, outcome.ports) if is_served else ""
        owner = Owner(snapshot.home, key, ingress.meta.uid)
        yield PlannedNews(owner, snapshot.access[cluster], serving, refused, others)


def planned_status(status: ApiStatus, cluster: ClusterName, snapshot: Snapshot) -> PlannedStatus:
    """Return the status of an object of a cluster, as its resource gets it."""
    key = ObjectKey(cluster, *status.of.key, ObjectKind(ROUTED_KINDS[status.of.kind].plural))
    text = json.dumps(status.status, sort_keys=True)
    owner = Owner(snapshot.home, key, status.meta.uid)
    gateway = ObjectKey(cluster, *status.gateway, ObjectKind.GATEWAY) if status.gateway else None
    return PlannedStatus(owner, snapshot.access[cluster], text, status.meta.generation, gateway)
