"""Objects that aren't served: notices about LoadBalancer Services of others, and objects that Envoy refused.

Notices about Services that are read and not served, and about sources with nothing to serve, are one sentence per
reason, with counts and a few examples. An object with a configuration that Envoy refused is planned with a problem, so
that the rest is served; the refusal is of its content, so another content is planned as any other. Pure.

Not here: Services of this stack that get nothing (`plan`), files or objects that can't be parsed
(`kubernetes.object_parsing`), and how the refused object is found (`sources.refusals`).
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TypeAlias

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from locallb.config.settings import Settings
from locallb.model.faults import NO_ORDER
from locallb.model.gateway_objects import Gateway, GatewayRoute, ListenerSet
from locallb.model.gateway_of_cluster import AuthorityBundle, Ingress, ObjectOfCluster, TlsSecret
from locallb.model.identities import ClusterName, Digest
from locallb.model.memory import Memo
from locallb.model.objects import MalformedService, Service
from locallb.model.reasons import Problem, Reason
from locallb.model.snapshot import Contents, Snapshot
from locallb.model.texts import clipped, counted, few
from locallb.planning.address_holders import ANY
from locallb.planning.planned import Plan
from locallb.planning.selection import implements, is_ours, selects

EXAMPLES = 3
"""Limit of names in a sentence; for further ones it has their number."""
_GROUPS = 8
"""Sentences about Services that are left out, and kinds in a sentence."""
_Any = Service | MalformedService


def left_out(snapshot: Snapshot, plan: Plan, settings: Settings) -> tuple[str, ...]:
    """Return which LoadBalancer Services aren't this stack's, by reason; if it serves none, also what was read."""
    handled = len(plan.placements) + len(plan.rejections)
    nothing = () if handled else (_nothing_to_serve(snapshot.contents),)
    if len(snapshot.services) + len(snapshot.malformed) == handled:
        return nothing  # as nearly always, at no cost
    groups: dict[str, list[_Any]] = {}
    everything: list[_Any] = [*snapshot.services, *snapshot.malformed]
    for service in sorted(
        (service for service in everything if not is_ours(service, settings)), key=lambda service: service.key
    ):
        groups.setdefault(_why(service, settings), []).append(service)
    sentences = [
        f"{counted(len(services), 'Service')} left out: {why}: {_examples(services)}"
        for why, services in groups.items()
    ]
    more = len(sentences) - _GROUPS
    rest = [f"Services left out for {counted(more, 'more reason')}"] if more > 0 else []
    return (*nothing, *sentences[:_GROUPS], *rest)


def unused_pins(snapshot: Snapshot, settings: Settings) -> tuple[str, ...]:
    """Return which pins are of no use, because no source has the Service."""
    if not settings.pins:
        return ()
    keys = [*(service.key for service in snapshot.services), *(rejected.key for rejected in snapshot.malformed)]
    present = {f"{key.namespace}/{key.name}" for key in keys}
    return tuple(
        f"local-lb:pins has {clipped(pin)}, but no source has a Service of that name and of type LoadBalancer;"
        " correct the name or remove the pin"
        for pin in settings.pins
        if pin not in present and ANY not in pin
    )


def _nothing_to_serve(contents: Sequence[Contents]) -> str:
    """Return what was read where no Service is served."""
    if not contents:
        return "Nothing to serve."
    sources = [_content(content) for content in contents[:_GROUPS]]
    more = [f"{counted(len(contents) - _GROUPS, 'more source')}"] if len(contents) > _GROUPS else []
    return f"Nothing to serve. Read: {'; '.join([*sources, *more])}."


def _why(service: _Any, settings: Settings) -> str:
    """Return why a Service isn't ours."""
    if not implements(service, settings.classes):
        klass = (
            "no class"
            if service.load_balancer_class is None
            else f"class {clipped(service.load_balancer_class) or '``'}"
        )
        return f"{klass} (this stack serves {_classes(settings)})"
    if not selects(service, settings.namespaces, {}):
        return (
            f"namespace {clipped(service.key.namespace)} (local-lb:namespaces has {_few(sorted(settings.namespaces))})"
        )
    wanted = _few([f"{clipped(key)}={clipped(value)}" for key, value in sorted(settings.selector.items())])
    return f"other labels (local-lb:selector wants {wanted})"


def _classes(settings: Settings) -> str:
    names = [f"class {clipped(name) or '``'}" for name in sorted(settings.classes.names)]
    return (
        _few([*(["those without a class"] if settings.classes.default else []), *names]) or "none, see local-lb:classes"
    )


def _examples(services: Collection[_Any]) -> str:
    return _few(
        [f"{service.key.cluster}/{clipped(service.key.namespace)}/{clipped(service.key.name)}" for service in services]
    )


def _few(names: Collection[str]) -> str:
    return few(names, EXAMPLES)


def _content(contents: Contents) -> str:
    """Return what a source had: `demo has 2 files with 3 objects (2 Deployment, 1 Service of type ClusterIP)`."""
    if contents.files == 0:
        return f"{contents.cluster} has no manifest that could be read"
    total = sum(contents.kinds.values())
    files = f"{counted(contents.files, 'file')} with " if contents.files is not None else ""
    objects = counted(total, "object") if total else "no object"
    kinds = f" ({_kinds(contents.kinds)})" if total else ""
    return f"{contents.cluster} has {files}{objects}{kinds}"


def _kinds(kinds: Mapping[str, int]) -> str:
    ranked = sorted(kinds.items(), key=lambda item: (-item[1], item[0]))
    rest = sum(count for _, count in ranked[_GROUPS:])
    return ", ".join(f"{count} {kind}" for kind, count in [*ranked[:_GROUPS], *([(OTHERS, rest)] if rest else [])])


OTHERS = "others"


def few_kinds(kinds: Iterable[str]) -> Mapping[str, int]:
    """Count kinds, at a bounded size whatever they are called."""
    counts = Counter(kinds)
    common = counts.most_common(_GROUPS)
    rest = counts.total() - sum(count for _, count in common)
    return dict(common) | ({OTHERS: rest} if rest else {})


def added(several: Iterable[Mapping[str, int]]) -> Mapping[str, int]:
    total: dict[str, int] = {}
    for counter in several:
        for kind, count in counter.items():
            total[kind] = total.get(kind, 0) + count
    return total


RefusableObject: TypeAlias = GatewayRoute | Ingress | ListenerSet | Gateway | TlsSecret | AuthorityBundle
Refusable: TypeAlias = RefusableObject | Service


class EnvoyRefusal(Struct, frozen=True):
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
    match thing:
        case Service():
            return str(thing.key)
        case GatewayRoute():
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
    snapshot: Snapshot, refusals: Iterable[EnvoyRefusal], contents: Memo[Digest] | None = None
) -> tuple[EnvoyRefusal, ...]:
    """Return the refusals of unchanged objects, refused with the same others; `contents` caches digests by name."""
    if not (refusals := tuple(refusals)):
        return ()
    contents = contents or Memo()
    present: dict[str, tuple[ClusterName, Refusable]] = {
        str(service.key): (service.key.cluster, service) for service in snapshot.services
    }
    for cluster, thing in snapshot.gateway_api:
        if isinstance(thing, RefusableObject):
            present[name_of(cluster, thing)] = cluster, thing
    digests: dict[tuple[ClusterName, bool], Digest] = {}

    def holds(refusal: EnvoyRefusal) -> bool:
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
    _refusals: tuple[EnvoyRefusal, ...] = ()
    _planned: Snapshot | None = None
    _made: Memo[ObjectOfCluster] = field(default_factory=Memo)
    _contents: Memo[Digest] = field(default_factory=Memo)

    def of(self, snapshot: Snapshot, refusals: tuple[EnvoyRefusal, ...]) -> Snapshot:
        """Return the snapshot to plan: the identical one if nothing in it is refused."""
        if self._planned is None or self.read is not snapshot or self._refusals != refusals:
            self.changed = _changed(self.read, snapshot) or self.changed
            self.read, self._refusals = snapshot, refusals
            valid = current(snapshot, refusals, self._contents)
            self._planned = self._without(snapshot, valid) if valid else snapshot
            self._contents.evict_unused()
            self._made.evict_unused()
        return self._planned

    def _without(self, snapshot: Snapshot, refusals: Iterable[EnvoyRefusal]) -> Snapshot:
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
                type=service.type,
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

    def _object(self, each: ObjectOfCluster, by_name: Mapping[str, EnvoyRefusal]) -> ObjectOfCluster:
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


def _refused(cluster: ClusterName, thing: RefusableObject, refusal: EnvoyRefusal) -> ObjectOfCluster:
    return ObjectOfCluster(cluster, refused(thing, refusal))


def refused(thing: RefusableObject, refusal: EnvoyRefusal) -> RefusableObject:
    """Return an object of which Envoy gets nothing that it refused."""
    if isinstance(thing, GatewayRoute) and refusal.wholly:
        return replace(thing, problem=_sentence(refusal), rules=(), hostnames=None)
    if isinstance(thing, Ingress) and refusal.wholly:
        return replace(thing, problem=_sentence(refusal), rules=(), tls=(), default=None)
    return replace(thing, problem=_sentence(refusal))


def _sentence(refusal: EnvoyRefusal) -> str:
    return f"Envoy refuses its configuration: {refusal.why}"
