"""Which objects of a live cluster Ingresses need, in stages, so that nothing else is requested.

Classes are asked for first, then Ingresses where a class is ours, then Secrets and Services where an Ingress is of such
a class. Not here: requests, and which of them a stack selects (`classes`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from locallb.config.ingress_settings import IngressSettings
from locallb.gateway.kinds import gathered
from locallb.gateway.needs import SECRET, SERVICE, KnownObjects, of_kinds
from locallb.ingress.classes import of_our_classes, our_classes
from locallb.model.gateway.objects import Named, Reference
from locallb.model.gateway.of_cluster import ObjectOfCluster

CLASS, INGRESS = "IngressClass", "Ingress"
_EVERY_CLASS = IngressSettings()


def wanted_kinds(served: Collection[str], known: KnownObjects) -> tuple[str, ...]:
    """Return which kinds are to be known, of those that may be read and of core ones."""
    if not {CLASS, INGRESS} <= set(served):
        return ()
    if not any(our_classes(objects, _EVERY_CLASS) for objects in of_kinds(known, CLASS)):
        return (CLASS,)
    if not any(of_our_classes(objects, _EVERY_CLASS) for objects in of_kinds(known, CLASS, INGRESS)):
        return CLASS, INGRESS
    return CLASS, INGRESS, SECRET, SERVICE


def named_objects(objects: Iterable[ObjectOfCluster]) -> frozenset[Reference]:
    """Return the Secrets that they name as certificates, in their own namespaces: nobody reads others."""
    return frozenset(
        Reference("", SECRET, Named(ingress.meta.key.namespace, entry.secret))
        for of_cluster in gathered(objects).values()
        for ingress in of_our_classes(of_cluster, _EVERY_CLASS)
        for entry in ingress.tls
        if entry.secret
    )
