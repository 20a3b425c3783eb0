"""Sentences and events of Gateways and Ingresses that stay unserved, as their cluster has no such class.

A sentence of the plan for each kind, and in clusters that get classes of ours an event of each object. Objects of a
class of another controller are that one's. Not here: the classes (`own_classes`), and unserved parts of objects that
are served (`statuses`).
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice
from types import MappingProxyType

from msgspec import Struct
from msgspec.structs import replace

from locallb.config.settings import Settings
from locallb.gateway.texts import of_missing_classes
from locallb.gateway.translation import our_classes
from locallb.ingress import classes
from locallb.ingress.parsing import CLASS_ANNOTATION
from locallb.model.gateway_objects import GROUP, Meta
from locallb.model.gateway_of_cluster import INGRESS_GROUP, GatewayObjects
from locallb.model.identities import ClusterName, ObjectKey, ObjectKind, Owner
from locallb.model.memory import AnyMemo
from locallb.model.own_classes import KINDS, NAME, controller_of
from locallb.model.snapshot import Snapshot
from locallb.model.texts import clipped, counted, few
from locallb.planning.planned import Plan, PlannedNews

_EXAMPLES = 3
MOST = 100
"""Objects of a kind in a cluster that get an event, the oldest."""


def with_unserved(
    plan: Plan, clusters: Mapping[ClusterName, GatewayObjects], snapshot: Snapshot, settings: Settings, memo: AnyMemo
) -> Plan:
    """Return the plan with sentences and events of objects of a missing class; `memo` has the former result."""
    made = frozenset((planned.cluster, planned.wanted.kind) for planned in plan.classes)
    found: tuple[_Orphans, ...] = memo.of("orphans", _orphans, clusters, settings, made)
    if not found:
        return plan
    sentences = tuple(each.sentence(is_live=each.cluster in snapshot.access) for each in found)
    asking = snapshot.classes.keys() & snapshot.access.keys()
    news = tuple(news for each in found if each.cluster in asking for news in _news(each, snapshot))
    return replace(plan, left_out=(*plan.left_out, *sentences), unserved=news)


class _Words(Struct, frozen=True):
    """How a kind of objects that name a class is spelled."""

    one: str
    several: str
    class_kind: ObjectKind
    controller_field: str
    class_field: str
    group: str


_WORDS: Mapping[ObjectKind, _Words] = MappingProxyType(
    {
        ObjectKind.GATEWAY: _Words(
            "Gateway", "Gateways", ObjectKind.GATEWAY_CLASS, "controllerName", "gatewayClassName", GROUP
        ),
        ObjectKind.INGRESS: _Words(
            "Ingress", "Ingresses", ObjectKind.INGRESS_CLASS, "controller", "ingressClassName", INGRESS_GROUP
        ),
    }
)


class _Orphan(Struct, frozen=True):
    """An object of a missing class."""

    meta: Meta
    class_name: str


class _Orphans(Struct, frozen=True):
    """The objects of one kind in a cluster without their class, the oldest first."""

    cluster: ClusterName
    kind: ObjectKind
    served: str
    """A class that the stack serves there; empty without one."""
    items: Sequence[_Orphan]

    def sentence(self, *, is_live: bool) -> str:
        """Write one for all."""
        words = _WORDS[self.kind]
        number = counted(len(self.items), words.one, words.several)
        missing = few(sorted({clipped(item.class_name) for item in self.items}), _EXAMPLES)
        names = [f"{self.cluster}/{self.kind}/{clipped(str(item.meta.key))}" for item in self.items]
        why = f"left out: {self.cluster} has no {KINDS[words.class_kind]} {missing}"
        return f"{number} {why}: {few(names, _EXAMPLES)}; {self.remedy(self.items[0], is_live=is_live)}"

    def remedy(self, item: _Orphan, *, is_live: bool) -> str:
        """Return what gives an object to local-lb: a command where its cluster runs."""
        words, key = _WORDS[self.kind], item.meta.key
        if not self.served:
            ours = f"{words.controller_field} {controller_of(words.class_kind)}"
            return f"make the class, with the {ours} if local-lb is to serve it"
        annotated = self.kind is ObjectKind.INGRESS and CLASS_ANNOTATION in item.meta.annotations
        if not is_live:
            field = CLASS_ANNOTATION if annotated else f"spec.{words.class_field}"
            return f"{field}: {self.served} gives it to local-lb"
        change = ["patch", "--type", "merge", "-p", json.dumps({"spec": {words.class_field: self.served}})]
        if annotated:  # it counts before the field
            change = ["annotate", "--overwrite", f"{CLASS_ANNOTATION}={self.served}"]
        verb, *terms = change
        command = ["kubectl", "-n", key.namespace, verb, f"{self.kind}.{words.group}/{key.name}", *terms]
        return f"`{shlex.join(command)}` gives it to local-lb"


def _orphans(
    clusters: Mapping[ClusterName, GatewayObjects], settings: Settings, made: Collection[tuple[ClusterName, ObjectKind]]
) -> tuple[_Orphans, ...]:
    """Return the objects without their class, of all clusters; of classes that are `made` there is one in a moment."""
    return tuple(each for _, objects in sorted(clusters.items()) for each in _of_cluster(objects, settings, made))


def _of_cluster(
    objects: GatewayObjects, settings: Settings, made: Collection[tuple[ClusterName, ObjectKind]]
) -> Iterator[_Orphans]:
    """Return those of one cluster, by kind."""
    gateways = [_Orphan(each.meta, each.class_name) for each in of_missing_classes(objects)]
    served = frozenset(each.meta.key.name for each in our_classes(objects, settings.gateway_classes))
    ingresses = classes.of_missing_classes(objects, settings.ingress)
    named = [_Orphan(each.meta, classes.class_of(each, objects)) for each in ingresses]
    for kind, names, items in (
        (ObjectKind.GATEWAY, served, gateways),
        (ObjectKind.INGRESS, classes.our_classes(objects, settings.ingress), named),
    ):
        coming = names | ({NAME} if (objects.cluster, _WORDS[kind].class_kind) in made else set())
        remaining = [
            item for item in items if item.class_name not in coming and classes.is_selected(item.meta, settings)
        ]
        if remaining:
            oldest = sorted(remaining, key=lambda item: item.meta.age)
            yield _Orphans(objects.cluster, kind, NAME if NAME in coming else min(coming, default=""), oldest)


def _news(orphans: _Orphans, snapshot: Snapshot) -> Iterator[PlannedNews]:
    """Return the events of objects of a running cluster."""
    kind = KINDS[_WORDS[orphans.kind].class_kind]
    # What is annotated may have a controller that needs no IngressClass.
    unannotated = (item for item in orphans.items if CLASS_ANNOTATION not in item.meta.annotations)
    for item in islice(unannotated, MOST):
        owner = Owner(snapshot.home, ObjectKey(orphans.cluster, *item.meta.key, orphans.kind), item.meta.uid)
        why = f"nobody serves it: the cluster has no {kind} {clipped(item.class_name)}"
        yield PlannedNews(
            owner, snapshot.access[orphans.cluster], failures=(f"{why}; {orphans.remedy(item, is_live=True)}",)
        )
