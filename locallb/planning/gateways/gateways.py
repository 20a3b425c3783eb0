"""Gateways and Ingresses as Services of a plan.

Each is planned as a Service with its own proxy. Not here: their traffic (`gateway.translation`,
`ingress.translation`), addresses (`serving`), and statuses (`gateway.status`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from types import MappingProxyType
from typing import NamedTuple

from msgspec.structs import replace

from locallb.config.settings import Settings
from locallb.gateway.kinds import gathered
from locallb.gateway.routes.bound import Bound
from locallb.gateway.texts import left_out, missing_classes, refusals, sentences
from locallb.gateway.translation import bind
from locallb.ingress import classes
from locallb.ingress.translation import bind_ingresses
from locallb.model.faults import Order
from locallb.model.gateway.of_cluster import GatewayObjects, ObjectOfCluster
from locallb.model.identities import ClusterName, ObjectKey
from locallb.model.memory import AnyMemo, Memo
from locallb.model.objects import MalformedService
from locallb.model.reasons import Problem, Reason
from locallb.model.snapshot import LocalAuthority, Snapshot


class Gateways(NamedTuple):
    """The Gateways and Ingresses that a stack serves, and notices about others."""

    bound: Mapping[ObjectKey, Bound] = MappingProxyType({})
    notices: tuple[str, ...] = ()
    """Sentences about unserved listeners, routes and rules."""
    left_out: tuple[str, ...] = ()
    """Sentences about objects of other controllers."""
    refused: Mapping[ObjectKey, tuple[str, ...]] = MappingProxyType({})
    """The notices about each Gateway, or Ingresses with one address, where there are any."""
    clusters: Mapping[ClusterName, GatewayObjects] = MappingProxyType({})
    """All that each cluster has."""


def gateways_of(
    objects: Iterable[ObjectOfCluster],
    settings: Settings,
    authority: LocalAuthority | None = None,
    memory: AnyMemo | None = None,
) -> Gateways:
    """Bind the Gateways and Ingresses of all clusters; `memory` caches earlier bindings.

    `authority` makes certificates for hosts without a Secret; None: such hosts aren't served by TLS.
    """
    memory = memory or Memo()
    by_cluster = dict(memory.of("gathered", _in_order, tuple(objects)))
    names = settings.gateway_classes
    notices, others = [*missing_classes(by_cluster, names)], list[str]()
    bound: dict[ObjectKey, Bound] = {}
    refused: dict[ObjectKey, tuple[str, ...]] = {}
    for objects_of_cluster in by_cluster.values():
        mine = bind(objects_of_cluster, names, memory, authority)
        ingresses = bind_ingresses(objects_of_cluster, settings, memory, authority)
        bound |= {served.key: served for served in (*mine, *ingresses)}
        notices += sentences(objects_of_cluster, mine, memory)
        notices += classes.class_notices(objects_of_cluster, settings.ingress)
        of_ingresses = {ingress.key: stated for ingress in ingresses if (stated := ingress.notices)}
        notices += chain.from_iterable(of_ingresses.values())
        refused |= {**refusals(objects_of_cluster, mine, memory), **of_ingresses}
        others += (*left_out(objects_of_cluster, names), *classes.left_out(objects_of_cluster, settings))
    memory.evict_unused()
    return Gateways(bound, tuple(notices), tuple(others), refused, by_cluster)


def _in_order(objects: Iterable[ObjectOfCluster]) -> Sequence[tuple[ClusterName, GatewayObjects]]:
    """Return what each cluster has, in an order that counts when two are compared."""
    return tuple(gathered(objects).items())


def with_gateways(snapshot: Snapshot, gateways: Mapping[ObjectKey, Bound]) -> Snapshot:
    """Return the snapshot with these among its Services; unplaced ones are malformed."""
    if not gateways:
        return snapshot
    wanted = tuple(served.want for served in gateways.values() if served.is_placed)
    refused = tuple(
        MalformedService(
            served.key,
            Problem(Reason.MALFORMED, f"{served.key}: {served.failure.message}"),
            served.want.uid,
            labels=served.want.labels,
        )
        for served in gateways.values()
        if served.failure and not served.is_placed
    )
    return replace(snapshot, services=(*snapshot.services, *wanted), malformed=(*snapshot.malformed, *refused))


def with_overrides(gateways: Gateways, overrides: Mapping[ObjectKey, Order]) -> Gateways:
    """Return Gateways and Ingresses as commands order it."""
    concerned = [served for key, served in gateways.bound.items() if key in overrides] if overrides else []
    if not concerned:
        return gateways
    changed = {
        served.key: replace(served, want=replace(served.want, ordered=overrides[served.key])) for served in concerned
    }
    return gateways._replace(bound={**gateways.bound, **changed})
