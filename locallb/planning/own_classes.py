"""The classes of ours in a plan: which running clusters get a GatewayClass and an IngressClass `local-lb`.

What the state has stays as it is while a cluster's classes are unknown. Not here: which sources ask for classes
(`sources`), and the objects (`model.own_classes`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from msgspec import Struct
from msgspec.structs import replace

from locallb.config.settings import Settings
from locallb.dns.updates import early_owner_id
from locallb.model.gateway_objects import Gateway
from locallb.model.identities import ClusterName, ObjectKind
from locallb.model.own_classes import KINDS, NAME, ClassFacts, HeldClass, WantedClass, class_differences, controller_of
from locallb.model.snapshot import Access, Snapshot
from locallb.model.texts import clipped
from locallb.planning.planned import Plan, PlannedClass

RIGHTS = "deploy/rbac-classes.yaml"
"""The file that gives the rights."""


def with_classes(plan: Plan, snapshot: Snapshot, settings: Settings) -> Plan:
    """Return the plan with the classes of clusters that get some, and with what hinders others."""
    clusters = [cluster for cluster in sorted(snapshot.classes) if cluster in snapshot.access]
    if not clusters:
        return plan
    kinds = tuple(_served_kinds(settings))
    decided = [_Decisions.of(cluster, kinds, snapshot) for cluster in clusters]
    return replace(
        plan,
        classes=tuple(planned for each in decided for planned in each.planned),
        notices=(*plan.notices, *(notice for each in decided for notice in each.notices)),
    )


def _served_kinds(settings: Settings) -> Iterator[ObjectKind]:
    """Return the kinds of which the stack serves a class with our name."""
    if settings.gateway_classes is None or NAME in settings.gateway_classes:
        yield ObjectKind.GATEWAY_CLASS
    if not settings.ingress.is_off and settings.ingress.class_name in {None, NAME}:
        yield ObjectKind.INGRESS_CLASS


class _Decisions(Struct, frozen=True):
    """The classes of one cluster."""

    planned: tuple[PlannedClass, ...]
    notices: tuple[str, ...]

    @classmethod
    def of(cls, cluster: ClusterName, kinds: tuple[ObjectKind, ...], snapshot: Snapshot) -> _Decisions:
        planned, lacking, foreign = list[PlannedClass](), dict[ObjectKind, tuple[str, ...]](), list[str]()
        held = {each.kind: each for each in snapshot.held_classes if each.cluster == cluster}
        access, observed = snapshot.access[cluster], snapshot.classes[cluster]
        for kind in kinds:
            facts = observed.get(kind)
            if facts is not None and (not facts.is_served or _is_of_others(kind, facts, snapshot)):
                foreign += _left_alone(cluster, kind, facts)
            elif facts is not None and not facts.lacks:
                planned.append(_planned(cluster, kind, facts, snapshot, access))
            else:
                planned += _as_held(held.get(kind), snapshot, access)
                lacking |= {kind: facts.lacks} if facts else {}
        return cls(tuple(planned), (*foreign, *_without_rights(cluster, lacking, held.keys())))


def _is_of_others(kind: ObjectKind, facts: ClassFacts, snapshot: Snapshot) -> bool:
    """Return whether the class is there and isn't this stack's: a user's, another stack's, another controller's."""
    own = early_owner_id(snapshot.home), controller_of(kind)
    return facts.own is not None and (facts.own.owner, facts.own.controller) != own


def _planned(
    cluster: ClusterName, kind: ObjectKind, facts: ClassFacts, snapshot: Snapshot, access: Access
) -> PlannedClass:
    is_gateway = kind is ObjectKind.GATEWAY_CLASS
    wanted = WantedClass(
        kind,
        early_owner_id(snapshot.home),
        cluster,
        is_default=not is_gateway and not facts.has_other_default,
        is_used=is_gateway and _is_used(cluster, snapshot),
    )
    differing = class_differences(facts.own, wanted) if facts.is_current else ()
    return PlannedClass(cluster, snapshot.home, access, wanted, differing)


def _is_used(cluster: ClusterName, snapshot: Snapshot) -> bool:
    """Return whether a Gateway of the cluster names our class."""
    return any(
        each.cluster == cluster and isinstance(each.object, Gateway) and each.object.class_name == NAME
        for each in snapshot.gateway_api
    )


def _as_held(held: HeldClass | None, snapshot: Snapshot, access: Access) -> Iterator[PlannedClass]:
    """Return the class as the state has it: it can't be told now whether that is different, or can't be changed."""
    if held:
        wanted = WantedClass(held.kind, early_owner_id(snapshot.home), held.cluster, held.is_default, held.is_used)
        yield PlannedClass(held.cluster, snapshot.home, access, wanted)


def _left_alone(cluster: ClusterName, kind: ObjectKind, facts: ClassFacts) -> Iterator[str]:
    """Explain why a class of another controller keeps its name."""
    if facts.own and facts.own.controller != controller_of(kind):
        yield (
            f"{cluster}: {KINDS[kind]} {NAME} has the controller {clipped(facts.own.controller)}, so it is left alone"
            f" and none is made; delete it, or write `classes: false` into the source"
        )


def _without_rights(
    cluster: ClusterName, lacking: Mapping[ObjectKind, tuple[str, ...]], held: Collection[ObjectKind]
) -> Iterator[str]:
    """Explain in one sentence why no class is made; to give up one that is there, the same rights are needed."""
    if lacking:
        missing = " and ".join(f"{', '.join(verbs)} {kind}" for kind, verbs in lacking.items())
        kinds = " and ".join(KINDS[kind] for kind in lacking)
        otherwise = "" if lacking.keys() & set(held) else ", or write `classes: false` into the source"
        yield (
            f"source {cluster}: this user may not {missing}, so no {kinds} {NAME} is made or kept; give it the rights"
            f" of {RIGHTS}{otherwise}"
        )
