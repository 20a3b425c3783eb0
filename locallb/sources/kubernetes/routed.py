"""Tables of the stages of reading, for Gateway API and for Ingresses, only as far as an object of ours needs them.

Each table has the first kinds, the kinds that follow from known objects, and the replacement while they are unknown.
Not here: reading once (`gateway_listing`), and following (`followed_gateways`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from msgspec import Struct

from locallb.gateway import needs as of_gateways
from locallb.gateway.kinds import KINDS
from locallb.gateway.needs import CONFIG_MAP, NAMESPACE, SECRET, SERVICE, ExistingObjects, kind_of
from locallb.gateway.parsing.referred import is_bundle
from locallb.ingress import needs as of_ingresses
from locallb.ingress.kinds import INGRESS_KINDS
from locallb.kubernetes.access.errors import ForbiddenError
from locallb.kubernetes.api.discovery import NAMESPACES, gateway_discovery, gateway_kinds, ingress_kinds, ingress_review
from locallb.kubernetes.api.feed import Place
from locallb.kubernetes.parsing.relevant import Document
from locallb.model.gateway.objects import Reference
from locallb.model.gateway.of_cluster import ObjectOfCluster
from locallb.model.identities import ClusterName
from locallb.sources.kubernetes.followed.discovered_kinds import Question
from locallb.sources.kubernetes.followed.objects import Fault


class Routed(Struct, frozen=True):
    """One of them."""

    question: Question
    needing: str
    """The objects that need it, as a sentence."""
    rights: str
    """The file that gives the rights."""
    kinds: frozenset[str]
    core: Mapping[str, Place]
    """Additional kinds that are listed too."""
    stages: tuple[str, str]
    """The classes, and what is of a class."""
    wanted: Callable[[Collection[str], ExistingObjects], tuple[str, ...]]
    named_objects: Callable[[Iterable[ObjectOfCluster]], frozenset[Reference]]
    refusal: Fault = Fault()
    """The fault if none of the kinds can be read any more; none: all objects count as removed."""

    def notices(self, cluster: ClusterName, fault: Fault, *, uses: bool) -> tuple[str, ...]:
        """Return why what is needed may be old; an outage is no news where the stack `uses` nothing of it."""
        if not fault or not (uses or fault.is_refusal):
            return ()
        sentence = f"source {cluster}: {fault.sentence}; what {self.needing} need of it counts as last read until"
        until = f"it is given, by the rights of {self.rights}" if fault.is_refusal else "it answers"
        return (f"{sentence} {until}",)

    def of(self, objects: Iterable[ObjectOfCluster]) -> tuple[ObjectOfCluster, ...]:
        """Return the objects that may come from it; empty if none is of its kinds."""
        mine = tuple(cluster_object for cluster_object in objects if self._may_read(kind_of(cluster_object.object)))
        return mine if any(kind_of(cluster_object.object) in self.kinds for cluster_object in mine) else ()

    def current_or_last(
        self, served: Collection[str] | None, existing: ExistingObjects, last: Iterable[ObjectOfCluster]
    ) -> tuple[ObjectOfCluster, ...]:
        """Return all needed objects, and classes if one is ours; unknown ones as they were in `last`.

        `served` are the kinds that may be read; None if they are unknown.
        """
        (classes, of_class), wanted = self.stages, self.wanted(served or (), existing)
        missing = set(wanted) - existing.keys()
        if served is None or (self.refusal and not served) or missing & {classes, of_class}:
            return tuple(last)
        if SERVICE not in wanted:
            return tuple(existing.get(classes, ())) if of_class in wanted else ()
        retained = (cluster_object for cluster_object in last if kind_of(cluster_object.object) in missing)
        return (*retained, *(cluster_object for kind in wanted for cluster_object in existing.get(kind, ())))

    def documents(self, last: Iterable[Document]) -> tuple[Document, ...]:
        """Return the objects of a last reading that come from its kinds; empty if none do."""
        mine = tuple(document for document in last if self._may_read(word_of(document)))
        return mine if any(word_of(document) in self.kinds for document in mine) else ()

    def _may_read(self, kind: str) -> bool:
        return kind in self.kinds or kind not in _EVERY_KIND


_EVERY_KIND = KINDS.keys() | INGRESS_KINDS.keys()


def word_of(document: Document) -> str:
    """Return the kind of a document or stand-in."""
    kind = str(document.get("kind"))
    if kind in _EVERY_KIND or kind == NAMESPACE:
        return kind
    return CONFIG_MAP if is_bundle(document) else SECRET


GATEWAYS = Routed(
    Question("Gateway API", gateway_discovery, gateway_kinds),
    "Gateways",
    "deploy/rbac-gateways.yaml",
    frozenset(KINDS),
    {NAMESPACE: NAMESPACES},
    (of_gateways.CLASS, of_gateways.GATEWAY),
    of_gateways.wanted_kinds,
    of_gateways.named_objects,
)
INGRESSES = Routed(
    Question("Ingresses", ingress_review, ingress_kinds),
    "Ingresses",
    "deploy/rbac-ingresses.yaml",
    frozenset(INGRESS_KINDS),
    {},
    (of_ingresses.CLASS, of_ingresses.INGRESS),
    of_ingresses.wanted_kinds,
    of_ingresses.named_objects,
    Fault("IngressClasses may be listed no more", ForbiddenError),
)
