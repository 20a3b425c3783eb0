"""What Envoy refused, found by its own verdict and remembered: a file of the stack, read with each plan.

If a load balancer can't be served, its configuration is validated, and its objects are left out by bisection until the
rest is accepted. Works for whatever reason Envoy refuses. Not here: what is planned instead (`planning.refused`), and
when this is done.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from random import SystemRandom

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from locallb import __version__
from locallb.config.settings import Settings
from locallb.envoy.binary import installed
from locallb.envoy.fragments import as_files
from locallb.envoy.validation import TIMEOUT, NoVerdictError, why_refused
from locallb.gateway.translation import BoundGateway
from locallb.ingress.translation import BoundIngresses
from locallb.model.errors import ClientError
from locallb.model.gateway_objects import Gateway, GatewayRoute
from locallb.model.gateway_of_cluster import AuthorityBundle, Ingress, ObjectOfCluster, TlsSecret
from locallb.model.identities import ClusterName, Digest, Home, ObjectKey, ObjectKind
from locallb.model.snapshot import Snapshot
from locallb.planning.gateways import gateways_of
from locallb.planning.plan import make_plan
from locallb.planning.planned import Plan
from locallb.planning.refused import EnvoyRefusal, Refusable, RefusedObjects, content_of, current, name_of, sibling
from locallb.storage import files, paths
from locallb.storage.paths import REFUSALS, stack_directory
from locallb.storage.proxy_directories import Proxies

_LARGEST = 4 << 20
_MAX_REFUSALS = 1000
_BUDGET = 5.0
"""Seconds after which no other load balancer is searched, nor one in which an offender was found.

The rest is found after the next update that fails.
"""
_LARGE = 2_500_000
"""Characters of files for which Envoy's verdict takes longer than a second.

For those only the last change and the whole are validated, in the remaining time, without bisection.
"""


class _Retained(Struct, frozen=True):
    version: int = 2
    envoy: str = ""
    program: str = ""
    """The versions of Envoy and local-lb that refused: others may accept it."""
    refused: tuple[EnvoyRefusal, ...] = ()


def _retained(refused: Iterable[EnvoyRefusal] = ()) -> _Retained:
    return _Retained(envoy=installed().version, program=__version__, refused=tuple(refused))


def read_refusals(home: Home) -> tuple[EnvoyRefusal, ...]:
    """Read the recorded refusals of these versions; empty if the file can't be read, as they are found again."""
    try:
        text = files.read_shared(stack_directory(home) / REFUSALS, _LARGEST)
        retained = msgspec.json.decode(text, type=_Retained) if text else None
        return retained.refused if retained and retained == _retained(retained.refused) else ()
    except (ClientError, msgspec.MsgspecError, UnicodeError):
        return ()


def find_refusals(  # noqa: PLR0913, PLR0917 - what was read and planned, and where to look first
    home: Home,
    settings: Settings,
    read: Snapshot,
    plan: Plan,
    keys: Iterable[ObjectKey],
    changed: Collection[str] = (),
) -> tuple[EnvoyRefusal, ...]:
    """Find the objects that Envoy refuses of these load balancers, record them, and return new refusals.

    `read` is the snapshot without regard to refusals; `changed` names the most likely causes. Refusals of objects that
    changed since are dropped.
    """
    until = time.monotonic() + _BUDGET
    existing = current(read, read_refusals(home))
    wanted, found = set(keys), list[EnvoyRefusal]()
    placements = [placement for placement in plan.placements if placement.key in wanted]
    for placement in SystemRandom().sample(placements, len(placements)):  # each is reached some time
        if time.monotonic() < until:
            search = _Search.of(read, settings, placement.key, _directory(plan, placement.proxy), until, changed)
            with suppress(NoVerdictError):  # nobody is blamed for what Envoy didn't say; the next failure asks again
                found += search.offenders((*existing, *found))
    if found:
        names = {refusal.name for refusal in found}
        _remember(home, [*found, *(refusal for refusal in existing if refusal.name not in names)])
    return tuple(found)


def _directory(plan: Plan, proxy: str) -> Path:
    return Proxies.ours().path(next(each.proxy.id for each in plan.proxies if each.proxy.name == proxy))


def _remember(home: Home, refusals: Sequence[EnvoyRefusal]) -> None:
    directory = stack_directory(home)
    paths.private_directory(directory)
    files.write(directory / REFUSALS, msgspec.json.encode(_retained(refusals[:_MAX_REFUSALS])).decode())


class _Search(Struct):
    """The search in one load balancer."""

    key: ObjectKey
    settings: Settings
    snapshot: Snapshot
    """The objects that it is made from, and little else."""
    directory: Path
    until: float
    objects: Sequence[ObjectOfCluster]
    """All that were read, of whatever load balancer."""
    changed: Collection[str]
    """Names of the objects that changed last."""
    _causes: dict[str, str] = field(default_factory=dict)
    """The reason of each refused object, by name."""
    _verdicts: dict[frozenset[tuple[str, bool]], str] = field(default_factory=dict)
    """Envoy's answers, by the refusals that they were given with."""
    _is_large: bool = False

    @classmethod
    def of(  # noqa: PLR0913, PLR0917 - as `find_refusals`
        cls,
        read: Snapshot,
        settings: Settings,
        key: ObjectKey,
        directory: Path,
        until: float,
        changed: Collection[str],
    ) -> _Search:
        """Narrow the snapshot to one load balancer."""
        services = tuple(service for service in read.services if service.key == key)
        objects = tuple(each for each in read.gateway_api if each.cluster == key.cluster and _may_concern(each, key))
        narrowed = replace(read, services=services, gateway_api=objects)
        return cls(key, settings, narrowed, directory, until, read.gateway_api, changed)

    def offenders(self, existing: tuple[EnvoyRefusal, ...]) -> list[EnvoyRefusal]:
        """Return the refusals that aren't known yet: none where Envoy accepts all. Raises NoVerdictError."""
        cause = self._cause(existing)
        if not cause:
            return []
        parts = [refusal for refusal in self._parts(cause) if refusal.name not in {each.name for each in existing}]
        if found := self._gently(parts, cause, existing):
            return found
        some = self._recent(parts, existing)
        found = self._guess(some, parts, cause, existing) or self._halve(some, parts, cause, existing)
        gentle = [replace(refusal, wholly=False) for refusal in found]
        return gentle if found and not self._cause((*existing, *gentle)) else found

    def _gently(
        self, parts: Sequence[EnvoyRefusal], cause: str, existing: tuple[EnvoyRefusal, ...]
    ) -> list[EnvoyRefusal]:
        """Put an error in place of the youngest object that changed last: mostly that is the only validation."""
        recent = [replace(refusal, why=cause, wholly=False) for refusal in parts if refusal.name in self.changed]
        if not recent or self._cause((*existing, recent[-1])):
            return []
        return [self._dependent(recent[-1], parts, existing)]

    def _recent(self, parts: Sequence[EnvoyRefusal], existing: tuple[EnvoyRefusal, ...]) -> Sequence[EnvoyRefusal]:
        """Return the parts that changed last if Envoy accepts the configuration without them; all parts otherwise."""
        recent = [refusal for refusal in parts if refusal.name in self.changed]
        return recent if recent and not self._cause((*existing, *recent)) else parts

    def _guess(
        self,
        some: Sequence[EnvoyRefusal],
        parts: Sequence[EnvoyRefusal],
        cause: str,
        existing: tuple[EnvoyRefusal, ...],
    ) -> list[EnvoyRefusal]:
        """Try the youngest object, which halves would find as well if it is to blame: most often it is."""
        if not some or self._cause((*existing, some[-1])):
            return []
        return [self._dependent(replace(some[-1], why=cause), parts, existing)]

    def _halve(
        self,
        some: Sequence[EnvoyRefusal],
        parts: Sequence[EnvoyRefusal],
        cause: str,
        existing: tuple[EnvoyRefusal, ...],
    ) -> list[EnvoyRefusal]:
        every = {refusal.name: refusal for refusal in some}
        if self._cause((*existing, *some)):
            return [
                replace(_refusal(self.key.cluster, thing, cause), sibling=self._sibling(together=True), together=True)
                for thing in self._whole()
            ]
        rest = every if self._is_large else self._search(some, every, existing)
        found = [replace(refusal, why=self._causes[name]) for name, refusal in rest.items() if name in self._causes]
        return [self._dependent(refusal, parts, existing) for refusal in found]

    def _dependent(
        self, refusal: EnvoyRefusal, parts: Sequence[EnvoyRefusal], existing: tuple[EnvoyRefusal, ...]
    ) -> EnvoyRefusal:
        """Limit a refusal to the objects it was refused with: none of the others, or only with them."""
        others = [each for each in parts if each.name != refusal.name]
        together = bool(others) and (time.monotonic() > self.until or not self._cause((*existing, *others)))
        return replace(refusal, sibling=self._sibling(together=together), together=together)

    def _sibling(self, *, together: bool) -> Digest:
        return sibling(self.objects, self.key.cluster, together=together)

    def _search(
        self, some: Sequence[EnvoyRefusal], excluded: Mapping[str, EnvoyRefusal], existing: tuple[EnvoyRefusal, ...]
    ) -> Mapping[str, EnvoyRefusal]:
        """Remove from `excluded` the parts of `some` that Envoy accepts; the first of them take precedence."""
        names = {refusal.name for refusal in some}
        without = {name: refusal for name, refusal in excluded.items() if name not in names}
        if not some or (self._causes and time.monotonic() > self.until):
            return excluded
        cause = self._cause((*existing, *without.values()))
        if not cause:
            return without
        if len(some) == 1:
            self._causes[some[0].name] = cause
            return excluded
        half = len(some) // 2
        return self._search(some[half:], self._search(some[:half], excluded, existing), existing)

    def _cause(self, refusals: tuple[EnvoyRefusal, ...]) -> str:
        """Return why Envoy refuses what is planned with these objects left out; empty where it doesn't."""
        question = frozenset((refusal.name, refusal.wholly) for refusal in refusals)
        if question not in self._verdicts:
            self._verdicts[question] = self._verdict(refusals)
        return self._verdicts[question]

    def _verdict(self, refusals: tuple[EnvoyRefusal, ...]) -> str:
        as_parts = tuple(replace(refusal, sibling=Digest("")) for refusal in refusals)
        plan = make_plan(RefusedObjects().of(self.snapshot, as_parts), self.settings)
        placement = next((each for each in plan.placements if each.key == self.key), None)
        if placement is None:
            return ""
        planned = next(each for each in plan.proxies if each.proxy.name == placement.proxy)
        rendered = placement.part.rendered if placement.part else None
        part = as_files(rendered.listeners, rendered.clusters) if rendered else {}
        texts = {**planned.rendered.files, **part}
        self._is_large = self._is_large or sum(map(len, texts.values())) > _LARGE
        timeout = max(0.0, self.until - time.monotonic()) if self._is_large else TIMEOUT
        return why_refused(texts, self.directory, timeout)

    def _parts(self, why: str) -> Iterable[EnvoyRefusal]:
        """Return the parts that may be left out: referenced objects, then the oldest first, as in other conflicts."""
        objects = self.snapshot.gateway_api
        bound = gateways_of(objects, self.settings, self.snapshot.authority).bound.get(self.key)
        things: list[Refusable] = [thing for _, thing in objects if isinstance(thing, TlsSecret | AuthorityBundle)]
        match bound:
            case BoundGateway():
                attached = {one.route.reference for routes in bound.attachment.routes.values() for one in routes}
                written = (thing for _, thing in objects if isinstance(thing, GatewayRoute))
                routes = [route for route in written if route.reference in attached]
                by_age = sorted(routes, key=lambda route: route.meta.age)
                things += [*bound.sets, *by_age]
            case BoundIngresses():
                mine = {ingress.meta.key for ingress in bound.ingresses}
                ingresses = [thing for _, thing in objects if isinstance(thing, Ingress) and thing.meta.key in mine]
                things += [*sorted(ingresses, key=lambda ingress: ingress.meta.age)]
        return [_refusal(self.key.cluster, thing, why) for thing in things]

    def _whole(self) -> Iterable[Refusable]:
        """Return what stands for all of it."""
        gateways = (each.object for each in self.snapshot.gateway_api if isinstance(each.object, Gateway))
        return [*self.snapshot.services, *gateways]


def _refusal(cluster: ClusterName, thing: Refusable, why: str) -> EnvoyRefusal:
    return EnvoyRefusal(name_of(cluster, thing), content_of(thing), why)


def _may_concern(each: ObjectOfCluster, key: ObjectKey) -> bool:
    """Return whether an object may be of a load balancer: all but other Gateways."""
    return not isinstance(each.object, Gateway) or (key.kind is ObjectKind.GATEWAY and each.object.meta.key == key[1:3])
