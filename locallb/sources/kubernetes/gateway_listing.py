"""The objects that Gateways and Ingresses of ours need from a cluster: the stages of reading, and one reading for `up`.

A stage names the first kinds, the kinds that follow from known objects, and the replacement while they are unknown.
Objects that can't be read count as last read, with a notice: Services don't wait for Gateways.

Not here: following (`followed_cluster`), and Services, which are read anyway (`reading`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import closing

from msgspec import Struct, field

from locallb.gateway import kinds
from locallb.gateway.kinds import CONFIG_MAP, KINDS, NAMESPACE, SECRET, SERVICE, ExistingObjects, by_kind, kind_of
from locallb.gateway.parsing import is_bundle, parse_referred
from locallb.gateway.status_patch import observed_statuses
from locallb.ingress import parsing
from locallb.ingress.parsing import INGRESS_KINDS, ROUTED_KINDS
from locallb.kubernetes.api.discovery import (
    NAMESPACES,
    gateway_discovery,
    gateway_kinds,
    ingress_kinds,
    ingress_review,
    lacking_rights,
)
from locallb.kubernetes.api.feed import ApiPath, Feed
from locallb.kubernetes.api.servers import ForbiddenError, KubeError, UnreachableError
from locallb.kubernetes.events import Identity
from locallb.kubernetes.object_parsing import Parsed, parse_objects
from locallb.kubernetes.relevant import Document, needed_by_gateways, parse_gateway_api
from locallb.model.gateway_objects import Named, Reference
from locallb.model.gateway_of_cluster import ObjectOfCluster
from locallb.model.identities import ClusterName, ObjectKind
from locallb.model.memory import Memo
from locallb.model.own_classes import ClassFacts, class_facts
from locallb.model.snapshot import Access
from locallb.model.texts import fault_of
from locallb.sources.kubernetes.informers import Fault, FollowedKinds, Question
from locallb.sources.kubernetes.named_objects import KINDS as NAMED_OBJECT_KINDS
from locallb.sources.kubernetes.named_objects import stand_in, unreadable


class Routed(Struct, frozen=True):
    """One of them."""

    question: Question
    needing: str
    """The objects that need it, as a sentence."""
    rights: str
    """The file that gives the rights."""
    kinds: frozenset[str]
    core: Mapping[str, ApiPath]
    """Additional kinds that are listed too."""
    stages: tuple[str, str]
    """The classes, and what is of a class."""
    wanted: Callable[[Collection[str], ExistingObjects], tuple[str, ...]]
    named_objects: Callable[[Iterable[ObjectOfCluster]], frozenset[Reference]]
    class_kind: ObjectKind
    """The kind of the classes."""
    refusal: Fault = Fault()
    """The fault if none of the kinds can be read any more; none: all objects count as removed."""

    def notices(self, cluster: ClusterName, fault: Fault, *, uses: bool) -> tuple[str, ...]:
        """Return why what is needed may be old; an outage is no news where the stack `uses` nothing of it."""
        if not fault or not (uses or fault.is_refusal):
            return ()
        sentence = f"source {cluster}: {fault.sentence}; what {self.needing} need of it counts as last read until"
        until = f"it is given, by the rights of {self.rights}" if fault.is_refusal else "it answers"
        return (f"{sentence} {until}",)

    def has_classes(self, served: Collection[str]) -> bool:
        """Return whether there are classes, by the kinds that may be read."""
        return self.stages[0] in self.wanted(served, {})

    def class_facts(
        self, served: Collection[str], documents: Iterable[Document] | None, lacks: tuple[str, ...] | None
    ) -> ClassFacts | None:
        """Return what is known of the classes: of the objects, and of this user's rights; None if either is unknown."""
        if not self.has_classes(served):
            return ClassFacts(lacks=("list",)) if self.refusal else ClassFacts(is_served=False)
        return None if documents is None or lacks is None else class_facts(self.class_kind, documents, lacks)

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
    (kinds.CLASS, kinds.GATEWAY),
    kinds.wanted_kinds,
    kinds.named_objects,
    ObjectKind.GATEWAY_CLASS,
)
INGRESSES = Routed(
    Question("Ingresses", ingress_review, ingress_kinds),
    "Ingresses",
    "deploy/rbac-ingresses.yaml",
    frozenset(INGRESS_KINDS),
    {},
    (parsing.CLASS, parsing.INGRESS),
    parsing.wanted_kinds,
    parsing.named_objects,
    ObjectKind.INGRESS_CLASS,
    Fault("IngressClasses may be listed no more", ForbiddenError),
)


_PAUSES = (0.2, 1.0)
"""Seconds between attempts."""


class GatewayListing(Struct, frozen=True):
    """The listed objects, and the reason that they may be old."""

    objects: tuple[Document, ...] = ()
    failure: Fault = Fault()
    classes: ClassFacts | None = None
    """What is known of the classes, where the cluster gets one of ours."""


def of_gateways(objects: Iterable[Document]) -> tuple[Document, ...]:
    """Return those of a last reading that only Gateways and Ingresses need."""
    return tuple(document for document in objects if needed_by_gateways(document))


def understood(cluster: ClusterName, document: Document) -> tuple[ObjectOfCluster, ...]:
    """Read one object. Never raises."""
    return parse_gateway_api(cluster, document, Memo())


def parsed(cluster: ClusterName, document: Document) -> Parsed:
    """Parse one followed object, with the observed statuses that are ours to write. Never raises."""
    return Parsed(
        gateway_api=understood(cluster, document),
        observed_statuses=observed_statuses(cluster, document, ROUTED_KINDS),
        notices=parse_objects(cluster, [document]).notices if fault_of(document) else (),
    )


def objects_in(running: Iterable[FollowedKinds]) -> list[ObjectOfCluster]:
    """Return all objects that routes are made of and that are followed."""
    return [cluster_object for kinds in running for part in kinds.parts() for cluster_object in part.gateway_api]


def refer_alike(before: Document | None, after: Document | None) -> bool:
    """Return whether two versions of a Service are one as the backend of a route; None: there is none."""
    earlier, later = (parse_referred(document) if document else None for document in (before, after))
    return earlier == later


def list_routed(
    routed: Routed, cluster: ClusterName, access: Access, before: Collection[Document], *, makes_class: bool
) -> GatewayListing:
    """Read it; `before` is what was read last of Gateways and Ingresses, `makes_class` asks what a class needs."""
    last = routed.documents(before)
    listing = _Listing(routed, cluster, access, last)
    lacks = None
    try:
        with closing(routed.question.connect(access)) as asking:
            listing.places = dict(routed.question.places(asking))
            if makes_class and routed.has_classes(listing.places):
                lacks = lacking_rights(asking, routed.class_kind)
    except KubeError as error:
        return GatewayListing(last, Fault().then(error))
    if last and not listing.places and routed.refusal:
        return GatewayListing(last, routed.refusal, listing.class_facts(lacks) if makes_class else None)
    objects = listing.read()
    return GatewayListing(objects, listing.failure, listing.class_facts(lacks) if makes_class else None)


class _Listing(Struct):
    routed: Routed
    cluster: ClusterName
    access: Access
    last: Collection[Document]
    places: dict[str, ApiPath] = field(default_factory=dict)
    failure: Fault = Fault()
    _documents: dict[str, tuple[Document, ...]] = field(default_factory=dict)

    def read(self) -> tuple[Document, ...]:
        """List kinds for as long as what they have makes others needed."""
        while missing := self._missing():
            for kind in missing:
                self._documents[kind] = self._listed(kind)
        if SERVICE not in (wanted := self._wanted()):
            first, second = self.routed.stages
            return self._documents[first] if second in wanted else ()
        named = [self._named(reference) for reference in sorted(self.routed.named_objects(self._objects()))]
        return (*self._all(), *(document for document in named if document))

    def class_facts(self, lacks: tuple[str, ...] | None) -> ClassFacts | None:
        """Return what is known of the classes, after `read`; nothing if that failed."""
        documents = None if self.failure else self._documents.get(self.routed.stages[0])
        return self.routed.class_facts(self.places, documents, lacks)

    def _wanted(self) -> tuple[str, ...]:
        return self.routed.wanted(self.places.keys(), by_kind(self._objects(), self._documents))

    def _missing(self) -> list[str]:
        return [kind for kind in self._wanted() if kind not in {*self._documents, *NAMED_OBJECT_KINDS, SERVICE}]

    def _all(self) -> list[Document]:
        return [document for documents in self._documents.values() for document in documents]

    def _objects(self) -> list[ObjectOfCluster]:
        return [cluster_object for document in self._all() for cluster_object in understood(self.cluster, document)]

    def _listed(self, kind: str) -> tuple[Document, ...]:
        for pause in (*_PAUSES, None):
            try:
                with closing(Feed(self.access, kind, {**self.places, **self.routed.core}[kind])) as feed:
                    return tuple(dict(document.items()) for document in feed.list()[0])
            except KubeError as error:
                if pause is None or not isinstance(error, UnreachableError):
                    self.failure = self.failure or Fault().then(error)
                    break
                time.sleep(pause)
        return tuple(document for document in self.last if word_of(document) == kind)

    def _named(self, named: Reference) -> Document | None:
        before = next(
            (document for document in self.last if word_of(document) == named.kind and _is(document, named.key)), None
        )
        try:
            return stand_in(self.access, named)
        except KubeError as error:
            self.failure = self.failure or Fault().then(error)
            return before or unreadable(named, error)


def _is(document: Document, named: Named) -> bool:
    identity = Identity.of(document)
    return (identity.namespace, identity.name) == named
