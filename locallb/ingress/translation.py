"""Translates Ingresses that share an address into the traffic to serve, statuses, and notices about unserved parts.

They are planned as one Service is, as a Gateway is; nothing here depends on addresses, endpoints or this host.

Not here: the routes of hosts (`hosts`), permissions to use an address (`planning.allocation`), and when a status is
true.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from msgspec import field
from msgspec.structs import replace

from locallb.config.settings import Dialect, IngressSettings, Settings
from locallb.gateway.listeners import MAX_ENTRIES
from locallb.gateway.routes import Bound
from locallb.gateway.statuses import ApiStatus
from locallb.ingress.annotations import policy_of
from locallb.ingress.hosts import Hosts, certificates, chains, within_bounds
from locallb.ingress.parsing import grouped
from locallb.ingress.rules import IngressBackends, Rules, applied, standing_for
from locallb.model.faults import Fault, annotation_problem
from locallb.model.fields import FieldError, as_address
from locallb.model.gateway_objects import Named
from locallb.model.gateway_of_cluster import GatewayObjects, Ingress
from locallb.model.http_serving import Chain
from locallb.model.identities import Family, IPAddress, ObjectKey, ObjectKind, Uid
from locallb.model.memory import AnyMemo, Memo
from locallb.model.objects import ADDRESSES_ANNOTATION, EMPTY, FamilyPolicy, Service, ServicePort
from locallb.model.snapshot import LocalAuthority
from locallb.model.texts import clipped, few


class Requested(NamedTuple):
    """At most one address a family, and what isn't heard."""

    addresses: tuple[IPAddress, ...] = ()
    failures: tuple[tuple[Ingress, str], ...] = ()

    @property
    def families(self) -> tuple[Family, ...]:
        """The families of the addresses; of none IPv4."""
        return tuple(map(Family.of, self.addresses)) or (Family.IPV4,)


def requested(key: ObjectKey, ingresses: Sequence[Ingress]) -> Requested:
    """Return the addresses requested by Ingresses that share one, the oldest first; `key` is their owner.

    The oldest decides, and the others get a notice. All of a class request nothing.
    """
    asking = [ingress for ingress in ingresses if _requires(ingress)]
    if asking and not key.namespace:
        why = f"{ADDRESSES_ANNOTATION} isn't heard where all Ingresses of a class have one address; set"
        why += " local-lb:ingress to have `address: ingress` or `address: namespace`"
        return Requested(failures=tuple((ingress, why) for ingress in asking))
    owner: Ingress | None = None
    oldest = next((ingress for ingress in ingresses if not ingress.problem), None)
    chosen: tuple[IPAddress, ...] = ()
    failures: list[tuple[Ingress, str]] = []
    for ingress in asking:
        try:
            demand = _requested(ingress.meta.annotations[ADDRESSES_ANNOTATION])
        except FieldError as error:
            failures.append((ingress, str(error)))
            continue
        if ingress is oldest:
            owner, chosen = ingress, demand
        elif owner is None and oldest:
            why = f"{ADDRESSES_ANNOTATION} asks for {' and '.join(map(str, demand))}, which only the oldest Ingress of"
            failures.append((ingress, f"{why} the address may: {oldest.meta.key}; annotate that one"))
        elif owner and demand != chosen:
            theirs = " and ".join(map(str, chosen))
            why = f"{ADDRESSES_ANNOTATION} asks for {' and '.join(map(str, demand))}, and the older Ingress"
            failures.append(
                (ingress, f"{why} {owner.meta.key} for {theirs}, which they have together; ask for the same")
            )
    return Requested(chosen, tuple(failures))


def _requires(ingress: Ingress) -> bool:
    return not ingress.problem and bool(ingress.meta.annotations.get(ADDRESSES_ANNOTATION, "").strip())


def _requested(text: str) -> tuple[IPAddress, ...]:
    """Read an annotation, IPv4 first. Raises FieldError."""
    demand: dict[Family, IPAddress] = {}
    for part in filter(None, map(str.strip, text.split(","))):
        address = as_address(ADDRESSES_ANNOTATION, part)
        first = demand.setdefault(Family.of(address), address)
        if first != address:
            why = f"asks for {first} and {address}; ask for one {Family.of(address)} address"
            raise FieldError(f"{ADDRESSES_ANNOTATION} {why}")
    return tuple(demand[family] for family in Family if family in demand)


def ingress_statuses(
    bound: BoundIngresses,
    addresses: Sequence[IPAddress],
    ports: Sequence[ServicePort],
    hosts: Mapping[Named, str],
) -> Iterable[ApiStatus]:
    """Return the statuses of the Ingresses that are served at these addresses, each with its name of `hosts`."""
    listed = [{"port": port.port, "protocol": str(port.protocol)} for port in ports]
    for ingress in bound.ingresses:
        name = {"hostname": host} if (host := hosts.get(ingress.meta.key)) else {}
        entries = [{"ip": str(address), **name, "ports": listed} for address in addresses]
        if not ingress.problem:
            yield ApiStatus(ingress.reference, ingress.meta, {"loadBalancer": {"ingress": entries}})


def served_text(
    bound: BoundIngresses, ingress: Ingress, addresses: Sequence[IPAddress], ports: Sequence[ServicePort]
) -> str:
    """Describe the served parts of an Ingress and their addresses: at the TLS port only hosts with a certificate."""
    secured, hosts = bound.secured.get(ingress.meta.key, ()), ingress.hosts or ("",)
    plain = [port for port in ports if port.port != bound.tls_port]
    if len(secured) == len(hosts) or len(plain) == len(ports):
        return serving_text(ingress.hosts, addresses, ports)
    by_tls = [str(port.number) for port in ports if port.port == bound.tls_port]
    also = f" ({few(secured)} also on {', '.join(by_tls)})" if secured else ""
    return serving_text(ingress.hosts, addresses, plain) + also


def serving_text(hosts: Sequence[str], addresses: Sequence[IPAddress], ports: Sequence[ServicePort]) -> str:
    """Say in a few words what is served where."""
    what = f"serves {few(hosts) or 'every host'} on {', '.join(str(port.number) for port in ports)}"
    return f"{what} at {' and '.join(map(str, addresses))}"


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
