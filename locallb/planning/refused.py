"""Objects with a configuration that Envoy refused: each is planned with a problem, so that the rest is served.

A refusal is of an object's content: another content is planned again as any other. Pure. Not here: how the causing
object is found (`sources.refusals`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import TypeAlias

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from locallb.model.faults import NO_ORDER
from locallb.model.gateway.ingresses import Ingress
from locallb.model.gateway.objects import Gateway, ListenerSet, Route
from locallb.model.gateway.of_cluster import AuthorityBundle, ObjectOfCluster, TlsSecret
from locallb.model.identities import ClusterName, Digest
from locallb.model.memory import Memo
from locallb.model.objects import MalformedService, Service
from locallb.model.reasons import Problem, Reason
from locallb.model.snapshot import Snapshot

RefusableObject: TypeAlias = Route | Ingress | ListenerSet | Gateway | TlsSecret | AuthorityBundle
Refusable: TypeAlias = RefusableObject | Service


class Refusal(Struct, frozen=True):
    """Envoy's refusal of one object with its content at that time."""

    name: str
    """Name of the object, as `name_of` returns it."""
    content: Digest
    why: str
    """The cause, in Envoy's words."""
    wholly: bool = True
    """Whether a route or Ingress adds nothing to the configuration; otherwise it answers requests with an error."""
    sibling: Digest = field(default=Digest(""), name="beside")
    """Digest of the objects it was refused with; the refusal holds only while that is the same."""
    together: bool = False
    """Whether it is refused only together with other objects."""


def name_of(cluster: ClusterName, thing: Refusable) -> str:
    """Name an object of a cluster."""
    match thing:
        case Service():
            return str(thing.key)
        case Route():
            return f"{cluster}/{thing.kind.value}/{thing.meta.key}"
        case TlsSecret() | AuthorityBundle():
            return f"{cluster}/{type(thing).__name__}/{thing.key}"
        case _:
            return f"{cluster}/{type(thing).__name__}/{thing.meta.key}"


def content_of(thing: Refusable) -> Digest:
    """Digest an object, without what commands order for it."""
    plain = replace(thing, ordered=NO_ORDER) if isinstance(thing, Service) else thing
    packed = msgspec.json.encode(plain, enc_hook=_plain, order="deterministic")
    return Digest(hashlib.sha256(packed).hexdigest())


def sibling(
    objects: Iterable[ObjectOfCluster], cluster: ClusterName, *, together: bool, contents: Memo[Digest] | None = None
) -> Digest:
    """Digest the objects that one is refused with: those with listeners, or (`together`) all refusable ones."""
    contents = contents or Memo()
    kinds = Refusable if together else Gateway | ListenerSet
    things = (each.object for each in objects if each.cluster == cluster and isinstance(each.object, kinds))
    named = ((name_of(cluster, thing), thing) for thing in things)
    of_names = sorted(f"{name} {contents.of(name, content_of, thing)}" for name, thing in named)
    return Digest(hashlib.sha256("\n".join(of_names).encode()).hexdigest())


def current(
    snapshot: Snapshot, refusals: Iterable[Refusal], contents: Memo[Digest] | None = None
) -> tuple[Refusal, ...]:
    """Return the refusals of unchanged objects, refused with the same others; `contents` caches digests by name."""
    contents = contents or Memo()
    present: dict[str, tuple[ClusterName, Refusable]] = {
        str(service.key): (service.key.cluster, service) for service in snapshot.services
    }
    for cluster, thing in snapshot.gateway_api:
        if isinstance(thing, RefusableObject):
            present[name_of(cluster, thing)] = cluster, thing
    digests: dict[tuple[ClusterName, bool], Digest] = {}

    def holds(refusal: Refusal) -> bool:
        if refusal.name not in present:
            return False
        cluster, thing = present[refusal.name]
        if contents.of(refusal.name, content_of, thing) != refusal.content:
            return False
        place = cluster, refusal.together
        if place not in digests:
            digests[place] = sibling(snapshot.gateway_api, cluster, together=refusal.together, contents=contents)
        return not refusal.sibling or digests[place] == refusal.sibling

    return tuple(refusal for refusal in refusals if holds(refusal))


def _plain(value: object) -> object:
    return dict(value) if isinstance(value, Mapping) else str(value)


class RefusedObjects(Struct):
    """Replaces refused objects by ones with a problem. For one thread."""

    read: Snapshot | None = None
    """The snapshot as it was read last."""
    changed: frozenset[str] = frozenset()
    """Names of the objects that were added or changed when any was last: most often they are to blame."""
    _refusals: tuple[Refusal, ...] = ()
    _planned: Snapshot | None = None
    _made: Memo[ObjectOfCluster] = field(default_factory=Memo)
    _contents: Memo[Digest] = field(default_factory=Memo)

    def of(self, snapshot: Snapshot, refusals: tuple[Refusal, ...]) -> Snapshot:
        """Return the snapshot to plan: the identical one if nothing in it is refused."""
        if self._planned is None or self.read is not snapshot or self._refusals != refusals:
            self.changed = _changed(self.read, snapshot) or self.changed
            self.read, self._refusals = snapshot, refusals
            valid = current(snapshot, refusals, self._contents)
            self._planned = self._without(snapshot, valid) if valid else snapshot
            self._contents.evict_unused()
            self._made.evict_unused()
        return self._planned

    def _without(self, snapshot: Snapshot, refusals: Iterable[Refusal]) -> Snapshot:
        by_name = {refusal.name: refusal for refusal in refusals}
        objects = tuple(self._object(each, by_name) for each in snapshot.gateway_api)
        refused = {service.key: refusal for service in snapshot.services if (refusal := by_name.get(str(service.key)))}
        malformed = tuple(
            MalformedService(
                service.key,
                Problem(Reason.MALFORMED, f"{service.key}: {_sentence(refused[service.key])}; change the Service"),
                service.uid,
                service.load_balancer_class,
                labels=service.labels,
            )
            for service in snapshot.services
            if service.key in refused
        )
        return replace(
            snapshot,
            gateway_api=objects,
            services=tuple(service for service in snapshot.services if service.key not in refused),
            malformed=(*snapshot.malformed, *malformed),
        )

    def _object(self, each: ObjectOfCluster, by_name: Mapping[str, Refusal]) -> ObjectOfCluster:
        """Return what is planned of one: the same object each time."""
        if not isinstance(each.object, RefusableObject):
            return each
        refusal = by_name.get(name_of(each.cluster, each.object))
        if refusal is None:
            return each
        return self._made.of(refusal.name, _refused, each.cluster, each.object, refusal)


def _changed(before: Snapshot | None, after: Snapshot) -> frozenset[str]:
    """Return the names of objects that weren't read before as they are; none of a first snapshot."""
    if before is None or before.gateway_api is after.gateway_api:
        return frozenset()
    existing = {id(each.object) for each in before.gateway_api}
    new = [each for each in after.gateway_api if id(each.object) not in existing]
    return frozenset(name_of(each.cluster, each.object) for each in new if isinstance(each.object, RefusableObject))


def _refused(cluster: ClusterName, thing: RefusableObject, refusal: Refusal) -> ObjectOfCluster:
    return ObjectOfCluster(cluster, refused(thing, refusal))


def refused(thing: RefusableObject, refusal: Refusal) -> RefusableObject:
    """Return an object of which Envoy gets nothing that it refused."""
    if isinstance(thing, Route) and refusal.wholly:
        return replace(thing, problem=_sentence(refusal), rules=(), hostnames=None)
    if isinstance(thing, Ingress) and refusal.wholly:
        return replace(thing, problem=_sentence(refusal), rules=(), tls=(), default=None)
    return replace(thing, problem=_sentence(refusal))


def _sentence(refusal: Refusal) -> str:
    return f"Envoy refuses its configuration: {refusal.why}"
