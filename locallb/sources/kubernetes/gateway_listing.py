"""Lists once, for `up`, the objects that Gateways and Ingresses of ours need from a cluster.

Objects that can't be read count as last read, with a notice: Services don't wait for Gateways. Not here: which kinds
are needed (`routed`), and Services, which are read anyway.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable
from contextlib import closing

from msgspec import Struct, field

from locallb.gateway.needs import SERVICE, by_kind
from locallb.gateway.parsing.referred import parse_referred
from locallb.gateway.status.observed import observed_statuses
from locallb.ingress.kinds import ROUTED_KINDS
from locallb.kubernetes.access.errors import KubeError, UnreachableError
from locallb.kubernetes.api.feed import Feed, Place
from locallb.kubernetes.identity import Identity
from locallb.kubernetes.parsing import gateway_api as parse_gateway_api
from locallb.kubernetes.parsing.objects import Parsed, parse_objects
from locallb.kubernetes.parsing.relevant import Document
from locallb.model.gateway.objects import Named, Reference
from locallb.model.gateway.of_cluster import ObjectOfCluster
from locallb.model.identities import ClusterName
from locallb.model.memory import Memo
from locallb.model.snapshot import Access
from locallb.model.texts import fault_of
from locallb.sources.kubernetes.followed.kinds import FollowedKinds
from locallb.sources.kubernetes.followed.objects import Fault
from locallb.sources.kubernetes.named_objects import KINDS, stand_in, unreadable
from locallb.sources.kubernetes.routed import Routed, word_of

_PAUSES = (0.2, 1.0)
"""Seconds between attempts."""


class GatewayListing(Struct, frozen=True):
    """The listed objects, and the reason that they may be old."""

    objects: tuple[Document, ...] = ()
    failure: Fault = Fault()


def of_gateways(objects: Iterable[Document]) -> tuple[Document, ...]:
    """Return those of a last reading that only Gateways and Ingresses need."""
    return tuple(document for document in objects if parse_gateway_api.is_read(document))


def understood(cluster: ClusterName, document: Document) -> tuple[ObjectOfCluster, ...]:
    """Read one object. Never raises."""
    return parse_gateway_api.parse_gateway_api(cluster, document, Memo())


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


def list_routed(routed: Routed, cluster: ClusterName, access: Access, before: Collection[Document]) -> GatewayListing:
    """Read it; `before` is what was read last of Gateways and Ingresses."""
    last = routed.documents(before)
    listing = _Listing(routed, cluster, access, last)
    try:
        listing.places = dict(routed.question.ask(access))
    except KubeError as error:
        return GatewayListing(last, Fault().then(error))
    if last and not listing.places and routed.refusal:
        return GatewayListing(last, routed.refusal)
    return GatewayListing(listing.read(), listing.failure)


class _Listing(Struct):
    routed: Routed
    cluster: ClusterName
    access: Access
    last: Collection[Document]
    places: dict[str, Place] = field(default_factory=dict)
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

    def _wanted(self) -> tuple[str, ...]:
        return self.routed.wanted(self.places.keys(), by_kind(self._objects(), self._documents))

    def _missing(self) -> list[str]:
        return [kind for kind in self._wanted() if kind not in {*self._documents, *KINDS, SERVICE}]

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
