"""What Envoy refused, found by its own verdict and remembered: a file of the stack, read with each plan.

Where a load balancer can't be served, its configuration is validated, and the objects that it is made from are left out
by halves until what remains is accepted. Works for whatever reason Envoy refuses. Not here: what is planned instead
(`planning.refused`), and when this is done.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from locallb.config.settings import Settings
from locallb.envoy.fragments import as_files
from locallb.envoy.validation import why_refused
from locallb.gateway.translation import BoundGateway
from locallb.ingress.translation import BoundIngresses
from locallb.model.errors import ClientError
from locallb.model.gateway.ingresses import Ingress
from locallb.model.gateway.objects import Gateway
from locallb.model.gateway.of_cluster import AuthorityBundle, ObjectOfCluster, TlsSecret
from locallb.model.identities import ClusterName, Home, ObjectKey, ObjectKind
from locallb.model.snapshot import Snapshot
from locallb.planning.gateways.gateways import gateways_of
from locallb.planning.plan import make_plan
from locallb.planning.planned import Plan
from locallb.planning.refused import REFUSABLE, Refusable, Refusal, RefusedObjects, content_of, name_of
from locallb.storage import files, paths
from locallb.storage.paths import REFUSALS, stack_directory
from locallb.storage.proxy_directories import Proxies

_LARGEST = 4 << 20
_MAX_REFUSALS = 1000
_BUDGET = 5.0
"""Seconds of a search that has found anything; the rest is found after the next update that fails."""


class _Kept(Struct, frozen=True):
    version: int = 1
    refused: tuple[Refusal, ...] = ()


def read_refusals(home: Home) -> tuple[Refusal, ...]:
    """Read what is remembered: nothing where that can't be read, as it is found again."""
    try:
        text = files.read_shared(stack_directory(home) / REFUSALS, _LARGEST)
        kept = msgspec.json.decode(text, type=_Kept) if text else _Kept()
    except (ClientError, msgspec.MsgspecError, UnicodeError):
        return ()
    return kept.refused if kept.version == 1 else ()


def find_refusals(
    home: Home, settings: Settings, read: Snapshot, plan: Plan, keys: Iterable[ObjectKey]
) -> tuple[Refusal, ...]:
    """Find out which objects Envoy refuses of these load balancers, remember that, and return those that are new.

    `read` is the snapshot without regard to refusals. What isn't as it was refused any more is forgotten.
    """
    known, until = read_refusals(home), time.monotonic() + _BUDGET
    wanted, found = set(keys), list[Refusal]()
    for placement in plan.placements:
        if placement.key in wanted:
            search = _Search.of(read, settings, placement.key, _directory(plan, placement.proxy), until)
            found += search.offenders((*known, *found))
    if found:
        _remember(home, [*found, *_current(read, known, {refusal.name for refusal in found})])
    return tuple(found)


def _directory(plan: Plan, proxy: str) -> Path:
    return Proxies.ours().path(next(each.proxy.id for each in plan.proxies if each.proxy.name == proxy))


def _current(read: Snapshot, known: Iterable[Refusal], others: Collection[str]) -> Iterable[Refusal]:
    """Return refusals of objects that are still as they were."""
    by_name: dict[str, Refusable] = {str(service.key): service for service in read.services}
    for cluster, thing in read.gateway_api:
        if isinstance(thing, REFUSABLE):
            by_name[name_of(cluster, thing)] = thing
    for refusal in known:
        present = by_name.get(refusal.name)
        if present and refusal.name not in others and content_of(present) == refusal.content:
            yield refusal


def _remember(home: Home, refusals: Sequence[Refusal]) -> None:
    directory = stack_directory(home)
    paths.private_directory(directory)
    kept = _Kept(refused=tuple(refusals[:_MAX_REFUSALS]))
    files.write(directory / REFUSALS, msgspec.json.encode(kept).decode())


class _Search(Struct):
    """The search in one load balancer."""

    key: ObjectKey
    settings: Settings
    snapshot: Snapshot
    """What it is made from, and little besides."""
    directory: Path
    until: float
    _causes: dict[str, str] = field(default_factory=dict)
    """Why each offender is refused, by name."""

    @classmethod
    def of(cls, read: Snapshot, settings: Settings, key: ObjectKey, directory: Path, until: float) -> _Search:
        """Narrow the snapshot to one load balancer."""
        services = tuple(service for service in read.services if service.key == key)
        objects = tuple(each for each in read.gateway_api if each.cluster == key.cluster and _may_concern(each, key))
        return cls(key, settings, replace(read, services=services, gateway_api=objects), directory, until)

    def offenders(self, known: tuple[Refusal, ...]) -> list[Refusal]:
        """Return the refusals that aren't known yet: none where Envoy accepts its configuration, or can't be asked."""
        cause = self._cause(known)
        if not cause:
            return []
        done = {refusal.name for refusal in known}
        parts = [refusal for refusal in self._parts(cause) if refusal.name not in done]
        every = {refusal.name: refusal for refusal in parts}
        if self._cause((*known, *parts)):
            whole = [_refusal(self.key.cluster, thing, cause) for thing in self._whole()]
            return [refusal for refusal in whole if refusal.name not in done]
        left = self._search(parts, every, known)
        found = [replace(refusal, why=self._causes.get(name, cause)) for name, refusal in left.items()]
        found = [refusal for refusal in found if refusal.name in self._causes]
        gentle = [replace(refusal, wholly=False) for refusal in found]
        return gentle if found and not self._cause((*known, *gentle)) else found

    def _search(
        self, some: Sequence[Refusal], excluded: Mapping[str, Refusal], known: tuple[Refusal, ...]
    ) -> Mapping[str, Refusal]:
        """Take those of `some` from what is `excluded` that Envoy accepts; the first of them are taken first."""
        names = {refusal.name for refusal in some}
        without = {name: refusal for name, refusal in excluded.items() if name not in names}
        if not some or (self._causes and time.monotonic() > self.until):
            return excluded
        cause = self._cause((*known, *without.values()))
        if not cause:
            return without
        if len(some) == 1:
            self._causes[some[0].name] = cause
            return excluded
        half = len(some) // 2
        return self._search(some[half:], self._search(some[:half], excluded, known), known)

    def _cause(self, refusals: tuple[Refusal, ...]) -> str:
        """Return why Envoy refuses what is planned with these objects left out; empty where it doesn't."""
        plan = make_plan(RefusedObjects().of(self.snapshot, refusals), self.settings)
        placement = next((each for each in plan.placements if each.key == self.key), None)
        if placement is None:
            return ""
        planned = next(each for each in plan.proxies if each.proxy.name == placement.proxy)
        rendered = placement.part.rendered if placement.part else None
        part = as_files(rendered.listeners, rendered.clusters) if rendered else {}
        return why_refused({**planned.rendered.files, **part}, self.directory)

    def _parts(self, why: str) -> Iterable[Refusal]:
        """Return what of it may be left out: what others refer to, then the oldest first, as in other conflicts."""
        objects = self.snapshot.gateway_api
        bound = gateways_of(objects, self.settings, self.snapshot.authority).bound.get(self.key)
        things: list[Refusable] = [thing for _, thing in objects if isinstance(thing, TlsSecret | AuthorityBundle)]
        match bound:
            case BoundGateway():
                attached = (one.route for routes in bound.attachment.routes.values() for one in routes)
                routes = {route.reference: route for route in attached}.values()
                by_age = sorted(routes, key=lambda route: route.meta.age)
                things += [*bound.sets, *by_age]
            case BoundIngresses():
                mine = {ingress.meta.key for ingress in bound.ingresses}
                written = [thing for _, thing in objects if isinstance(thing, Ingress) and thing.meta.key in mine]
                things += [*sorted(written, key=lambda ingress: ingress.meta.age)]
        return [_refusal(self.key.cluster, thing, why) for thing in things if not getattr(thing, "problem", "")]

    def _whole(self) -> Iterable[Refusable]:
        """Return what stands for all of it."""
        gateways = (each.object for each in self.snapshot.gateway_api if isinstance(each.object, Gateway))
        return [*self.snapshot.services, *gateways]


def _refusal(cluster: ClusterName, thing: Refusable, why: str) -> Refusal:
    return Refusal(name_of(cluster, thing), content_of(thing), why)


def _may_concern(each: ObjectOfCluster, key: ObjectKey) -> bool:
    """Return whether an object may be of a load balancer: all but other Gateways."""
    return not isinstance(each.object, Gateway) or (key.kind is ObjectKind.GATEWAY and each.object.meta.key == key[1:3])
