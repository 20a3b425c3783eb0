"""What a stack serves, of its classes and selected by it, and sentences and events of objects that stay unserved. Pure.

Gateways and Ingresses stay unserved where their cluster has no such class: a sentence of the plan for each kind, and in
clusters that get classes of ours an event of each object. Objects of a class of another controller are that one's, and
are never changed. Not here: the classes (`own_classes`), and unserved parts of objects that are served (`statuses`).
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from types import MappingProxyType
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from locallb.config.settings import Classes, OtherServices, Settings
from locallb.gateway.texts import of_missing_classes
from locallb.gateway.translation import our_classes
from locallb.ingress import parsing
from locallb.ingress.parsing import CLASS_ANNOTATION
from locallb.model.gateway_objects import GROUP, Meta
from locallb.model.gateway_of_cluster import INGRESS_GROUP, GatewayObjects
from locallb.model.identities import OF_INGRESSES, ClusterName, ObjectKey, ObjectKind, Owner, SharingKey
from locallb.model.memory import AnyMemo
from locallb.model.objects import EMPTY, EndpointSlice, MalformedService, Service, ServiceType
from locallb.model.own_classes import KINDS, NAME, controller_of
from locallb.model.snapshot import Snapshot
from locallb.model.texts import clipped, counted, few
from locallb.planning.planned import Plan, PlannedNews


def is_ours(service: Service | MalformedService, settings: Settings) -> bool:
    """Return whether this stack serves `service`."""
    if service.key.kind in OF_INGRESSES or is_internal(service):
        return True  # checked when Ingresses were bound, and internal ones selected
    return implements(service, settings.classes) and selects(service, settings.namespaces, settings.selector)


def is_internal(service: Service | MalformedService) -> bool:
    """Return whether `service` is of another type than LoadBalancer: nothing is written to its cluster."""
    return service.type is not ServiceType.LOAD_BALANCER


def selected(services: Iterable[Service], wanted: OtherServices) -> tuple[Service, ...]:
    """Return those Services of other types than LoadBalancer that a stack serves on request."""
    return tuple(
        service
        for service in services
        if service.type in wanted.types and selects(service, wanted.namespaces, wanted.selector)
    )


_OF_THE_WHOLE: Mapping[str, Any] = {"requested": (), "sharing_key": SharingKey(""), "annotations": EMPTY}
"""What a headless Service asks for and none of its pods by itself."""


def pods_of(
    services: Iterable[Service], slices: Iterable[EndpointSlice]
) -> Iterator[tuple[Service, tuple[EndpointSlice, ...]]]:
    """Return, for each pod with a hostname of a headless Service, a Service of its own, and its endpoints.

    Its name is `<hostname>.<service>`, as in the DNS of its cluster; no Service of a cluster has a dot in its name.
    """
    headless = {service.key: service for service in services if service.headless}
    pods: dict[ObjectKey, tuple[Service, list[EndpointSlice]]] = {}
    for each in slices if headless else ():
        service = headless.get(each.service)
        for endpoint in each.endpoints if service else ():
            if service and endpoint.hostname:
                key = service.key._replace(name=f"{endpoint.hostname}.{service.key.name}")
                pod = replace(service, key=key, headless=False, **_OF_THE_WHOLE)
                of_pod = replace(each, service=key, endpoints=(endpoint,))
                pods.setdefault(key, (pod, []))[1].append(of_pod)
    return ((pod, tuple(of_pod)) for _, (pod, of_pod) in sorted(pods.items()))


def implements(service: Service | MalformedService, classes: Classes) -> bool:
    if service.key.kind is ObjectKind.GATEWAY:
        return True  # those of other GatewayClasses aren't among the Services
    klass = service.load_balancer_class
    return classes.default if klass is None else klass in classes.names


def selects(service: Service | MalformedService, namespaces: Collection[str], selector: Mapping[str, str]) -> bool:
    """Return whether `service` is in one of `namespaces` and has all labels of `selector`; empty ones select all."""
    if namespaces and service.key.namespace not in namespaces:
        return False
    return all(service.labels.get(label) == value for label, value in selector.items())


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
    ingresses = parsing.of_missing_classes(objects, settings.ingress)
    named = [_Orphan(each.meta, parsing.class_of(each, objects)) for each in ingresses]
    for kind, names, items in (
        (ObjectKind.GATEWAY, served, gateways),
        (ObjectKind.INGRESS, parsing.our_classes(objects, settings.ingress), named),
    ):
        coming = names | ({NAME} if (objects.cluster, _WORDS[kind].class_kind) in made else set())
        remaining = [
            item for item in items if item.class_name not in coming and parsing.is_selected(item.meta, settings)
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
