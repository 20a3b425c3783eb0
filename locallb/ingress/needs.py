"""Objects of a live cluster that Ingresses need, in stages, so that nothing else is requested.

Classes are requested first, then Ingresses if a class is ours, then Secrets and Services if an Ingress is of such
a class. Not here: requests, and the stack's selection (`classes`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from locallb.config.ingress_settings import IngressSettings
from locallb.gateway.kinds import gathered
from locallb.gateway.needs import SECRET, SERVICE, ExistingObjects, of_kinds
from locallb.ingress.classes import of_our_classes, our_classes
from locallb.model.gateway.objects import Named, Reference
from locallb.model.gateway.of_cluster import ObjectOfCluster

CLASS, INGRESS = "IngressClass", "Ingress"
_EVERY_CLASS = IngressSettings()


def wanted_kinds(served: Collection[str], existing: ExistingObjects) -> tuple[str, ...]:
    """Return the needed kinds: readable ones and core ones."""
    if not {CLASS, INGRESS} <= set(served):
        return ()
    if not any(our_classes(objects, _EVERY_CLASS) for objects in of_kinds(existing, CLASS)):
        return (CLASS,)
    if not any(of_our_classes(objects, _EVERY_CLASS) for objects in of_kinds(existing, CLASS, INGRESS)):
        return CLASS, INGRESS
    return CLASS, INGRESS, SECRET, SERVICE


def named_objects(objects: Iterable[ObjectOfCluster]) -> frozenset[Reference]:
    """Return the Secrets that Ingresses name as certificates, in their own namespaces: others are never read."""
    return frozenset(
        Reference("", SECRET, Named(ingress.meta.key.namespace, entry.secret))
        for of_cluster in gathered(objects).values()
        for ingress in of_our_classes(of_cluster, _EVERY_CLASS)
        for entry in ingress.tls
        if entry.secret
    )
