"""Translates Ingresses that share an address into the traffic to serve, and notices about unserved parts.

They are planned as one Service is, as a Gateway is; nothing here depends on addresses, endpoints or this host.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from msgspec import field
from msgspec.structs import replace

from locallb.config.ingress_settings import Dialect, IngressSettings
from locallb.config.settings import Settings
from locallb.gateway.fault_annotation import annotation_problem
from locallb.gateway.listeners.capacity import MAX_ENTRIES
from locallb.gateway.routes.bound import Bound
from locallb.ingress.annotations.applied import applied
from locallb.ingress.annotations.reading import policy_of
from locallb.ingress.backends import IngressBackends
from locallb.ingress.classes import grouped
from locallb.ingress.hosts import Hosts, within_bounds
from locallb.ingress.requested import Requested, requested
from locallb.ingress.rules import Rules, standing_for
from locallb.ingress.tls import certificates, chains
from locallb.model.faults import Fault
from locallb.model.formatting import clipped
from locallb.model.gateway.ingresses import Ingress
from locallb.model.gateway.objects import Named
from locallb.model.gateway.of_cluster import GatewayObjects
from locallb.model.http.serving import Chain
from locallb.model.identities import ObjectKey, ObjectKind, Uid
from locallb.model.memory import AnyMemo, Memo
from locallb.model.objects import EMPTY, FamilyPolicy, Service, ServicePort
from locallb.model.snapshot import LocalAuthority

MAX_LISTED_IN_STATUS = 50
"""Limit of troubles reported for one Ingress."""


class IngressFailure(NamedTuple):
    """An unserved part of an Ingress."""

    of: Named
    message: str
    is_own: bool = False
    """It depends on the Ingress alone, so that it doesn't pass by itself."""


class BoundIngresses(Bound, frozen=True, kw_only=True):
    """Ingresses that have an address together, the oldest first."""

    ingresses: tuple[Ingress, ...]
    failures: tuple[IngressFailure, ...] = ()
    """The unserved parts, by Ingress."""
    tls_port: int = 0
    """The port at which hosts with a certificate are served."""
    secured: Mapping[Named, tuple[str, ...]] = field(default_factory=dict)
    """The hosts of each Ingress that are served by TLS; an empty one means every host."""
    shadowed: frozenset[Named] = frozenset()
    """Unserved Ingresses: they have only a default backend, and an older Ingress has one too."""

    @property
    def notices(self) -> tuple[str, ...]:
        """Sentences about what isn't served of its Ingresses, with their names."""
        return tuple(f"{self.key.cluster}: {_named(name)}: {why}" for name, why, _ in self.failures)

    @property
    def hostnames(self) -> tuple[str, ...]:
        """The hosts of rules and of TLS, the oldest Ingress' first."""
        return tuple(dict.fromkeys(host for ingress in self.ingresses for host in ingress.hosts))

    @property
    def faults(self) -> Mapping[str, Fault]:
        """The faults ordered for Ingresses, by their names."""
        return {_named(ingress.meta.key): fault for ingress in self.ingresses if (fault := ingress.meta.failing)}


def bind_ingresses(
    objects: GatewayObjects,
    settings: Settings,
    memory: AnyMemo | None = None,
    authority: LocalAuthority | None = None,
) -> tuple[BoundIngresses, ...]:
    """Bind all Ingresses of a cluster; `memory` caches earlier bindings.

    `authority` makes certificates for hosts without a Secret; None: such hosts aren't served by TLS.
    """
    memory = memory or Memo()
    shared = replace(
        objects, classes=(), gateways=(), listener_sets=(), routes=(), ingresses=(), ingress_classes=(), namespaces={}
    )
    return tuple(
        memory.of(key, _bound, key, ingresses, shared, settings.ingress, authority)
        for key, ingresses in sorted(grouped(objects, settings).items())
    )


def _bound(
    key: ObjectKey,
    ingresses: Sequence[Ingress],
    shared: GatewayObjects,
    settings: IngressSettings,
    authority: LocalAuthority | None,
) -> BoundIngresses:
    policies = {ingress.meta.key: policy_of(ingress, settings.annotations) for ingress in ingresses}
    wanted = [applied(ingress, policies[ingress.meta.key]) for ingress in ingresses]
    backends, ingresses = IngressBackends(shared, key), tuple(within_bounds(wanted, MAX_ENTRIES))
    readable = [ingress for ingress in ingresses if not ingress.problem]
    shown = certificates(readable, shared, authority)
    rules, by_source = Rules(readable, policies, backends), Dialect.NGINX in settings.annotations
    act = partial(rules.plain, certified=shown.namespaces, https=settings.https)
    main = [(ingress, policies[ingress.meta.key]) for ingress in ingresses]
    plain = Hosts.of([ingress for ingress, policy in main if policy.plain], act, by_source=by_source)
    by_port: dict[int, tuple[Chain, ...]] = {settings.http: (Chain(plain.table(plain.names)),)}
    conflicts = plain.conflicts
    if shown.by_name:
        secured = Hosts.of([ingress for ingress, policy in main if policy.secured], rules.secured, by_source=by_source)
        by_port[settings.https] = tuple(chains(shown, secured))
        conflicts = [*conflicts, *secured.conflicts]
    annotated = ((ingress, annotation_problem(ingress.meta.annotations, routed=True)) for ingress in readable)
    refused = [
        *_problems(ingresses),
        *rules.refused,
        *((ingress, why) for ingress in ingresses for why in policies[ingress.meta.key].problems),
        *((ingress, problem) for ingress, problem in annotated if problem),
    ]
    failures = [
        *backends.failures,
        *rules.canary_failures(),
        *rules.tls_failures(readable, shown.by_name),
    ]
    failures += [
        (ingress, f"{host or 'every host'}{path}: the older {_named(other.meta.key)} has it; remove one of both")
        for ingress, host, path, other in conflicts
    ]
    shadowed = [(ingress, older) for ingress, older in plain.shadowed if not ingress.problem]
    failures += [
        (ingress, f"its default backend: the older {_named(older.meta.key)} has that of every host; remove one of both")
        for ingress, older in shadowed
    ]
    failures += shown.problems
    demand = requested(key, ingresses)
    failures += demand.failures
    return BoundIngresses(
        want=_want(key, ingresses, tuple(map(ServicePort, by_port)), demand),
        chains=by_port,
        targets=backends.targets,
        ingresses=tuple(ingresses),
        failures=tuple(_bounded(refused, failures)),
        tls_port=settings.https,
        secured={
            ingress.meta.key: tuple(host for host in ingress.hosts or ("",) if standing_for(host, shown.by_name))
            for ingress in readable
        },
        shadowed=frozenset(ingress.meta.key for ingress, _ in shadowed if not ingress.rules),
    )


def _bounded(
    refused: Iterable[tuple[Ingress, str]], failures: Iterable[tuple[Ingress, str]]
) -> Iterator[IngressFailure]:
    """Return each sentence once; of an Ingress that has many the first, and how many more there are."""
    named = dict.fromkeys((ingress.meta.key, why) for ingress, why in refused)
    own = len(named)
    named |= dict.fromkeys((ingress.meta.key, why) for ingress, why in failures)
    every, counts = Counter(key for key, _ in named), Counter[Named]()
    for number, (key, why) in enumerate(named):
        counts[key] += 1
        if counts[key] <= MAX_LISTED_IN_STATUS:
            yield IngressFailure(key, why, number < own)
    for key, many in every.items():
        if many > MAX_LISTED_IN_STATUS:
            yield IngressFailure(
                key, f"{many - MAX_LISTED_IN_STATUS} more of its parts aren't served; correct these first"
            )


def _want(key: ObjectKey, ingresses: Sequence[Ingress], ports: tuple[ServicePort, ...], demand: Requested) -> Service:
    """Make the Service as which they are planned; labels count where there is but one Ingress of the address."""
    alone = ingresses[0].meta if key.kind is ObjectKind.INGRESS else None
    labels, annotations = (alone.labels, alone.annotations) if alone else (EMPTY, EMPTY)
    created = min(ingress.meta.created for ingress in ingresses)
    uid = alone.uid if alone else Uid("")
    return Service(
        key,
        ports,
        uid,
        created,
        demand.families,
        FamilyPolicy.REQUIRE_DUAL if len(demand.families) > 1 else FamilyPolicy.SINGLE,
        demand.addresses,
        labels=labels,
        annotations=annotations,
    )


def _named(key: Named) -> str:
    return f"Ingress {clipped(str(key))}"


def _problems(ingresses: Sequence[Ingress]) -> Iterator[tuple[Ingress, str]]:
    """Return what can't be understood of Ingresses."""
    for ingress in ingresses:
        if ingress.problem:
            yield ingress, ingress.problem
        yield from ((ingress, why) for why in ingress.refused)
        for rule in () if ingress.problem else ingress.rules:
            yield from ((ingress, why) for why in (rule.problem, *(path.problem for path in rule.paths)) if why)
