"""Reads one Snapshot, the input of a plan: sources, own state, ledger, host, and this user's certificate authority.

Held addresses are read first, because they decide whether an unreadable source may be skipped. Not here: sources
(`found`, `source`), and the authority's key and certificates (`certificates.store`, `certificates.local`).
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, takewhile
from pathlib import Path
from typing import NamedTuple, TypeAlias, TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

from locallb.certificates.local import DOMAINS
from locallb.config.settings import OtherServices, PodRouting, Settings, Sharing
from locallb.host.facts import may_change_routes, with_routes
from locallb.kubernetes.object_parsing import AnyStatus, Parsed
from locallb.kubernetes.pod_ranges import with_ranges
from locallb.kubernetes.status import ObservedStatus
from locallb.ledger.claims import ClaimFile
from locallb.ledger.ledger import Ledger
from locallb.model.errors import ClientError
from locallb.model.identities import ROUTED, ClusterName, Fingerprint, Home, ObjectKey, Protocol
from locallb.model.memory import Memo
from locallb.model.serving import Listener, Proxy, ProxyTraits
from locallb.model.snapshot import Claim, HeldProxy, HeldProxyAssignment, HostFacts, LocalAuthority, Snapshot
from locallb.planning.planned import Plan
from locallb.planning.pool_routes import pool_notices, unchecked
from locallb.planning.port_mapping import LOOPBACK
from locallb.planning.proxy_assignment import is_shared
from locallb.planning.selection import pods_of, selected
from locallb.runtimes.pod_routes import helper_could_route, helper_may_route
from locallb.runtimes.runtime import UnfitRuntimeError, runtime
from locallb.sources import SourceError
from locallb.sources.found import find_sources
from locallb.sources.held import HeldByState, HeldResource, held_by
from locallb.sources.overrides import Overrides, next_end, read_overrides
from locallb.sources.source import SourceRead, SourceResult, source_type
from locallb.storage import paths

_FIRST = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


class AuthorityRead(NamedTuple):
    """The authority, and why it can't be used."""

    authority: LocalAuthority | None = None
    complaints: tuple[str, ...] = ()


NO_AUTHORITY = AuthorityRead()


def read_authority(settings: Settings, held: Fingerprint, *, keep: bool) -> AuthorityRead:
    """Read the authority if the stack wants one, without its key; `keep`: create it if it doesn't exist.

    `held` is the fingerprint of the authority in the state. If the authority can't be used, the state counts: existing
    certificates serve on, and new ones fail separately.
    """
    if not settings.local_certificates:
        return NO_AUTHORITY
    from locallb.certificates import store  # noqa: PLC0415 - few stacks need what it loads

    now = store.now()
    day = (now - _FIRST).days
    try:
        existing = store.ensure(now) if keep else store.find()
    except ClientError as error:
        return AuthorityRead(LocalAuthority(held, (), day), (str(error),))
    if existing is None:
        return AuthorityRead(LocalAuthority(Fingerprint(""), DOMAINS, day))
    why = store.fault(existing, now)
    return AuthorityRead(
        LocalAuthority(existing.observed.fingerprint, existing.observed.domains, day), (why,) if why else ()
    )


def unknown_authority(settings: Settings) -> LocalAuthority | None:
    """Return the authority of the user who runs this, read at the time of the call."""
    return LocalAuthority(Fingerprint(""), DOMAINS) if settings.local_certificates else None


MAX_SENTENCES = 50
"""Most complaints, and notices, that are reported of one source."""
_Part = TypeVar("_Part")


class SnapshotResult(Struct, frozen=True):
    """A snapshot, and notices for the user."""

    snapshot: Snapshot
    complaints: tuple[str, ...] = ()
    """Sources that couldn't be read and were planned as last read: the run must not end well."""
    notices: tuple[str, ...] = ()
    """Input that was skipped, or repaired by lenient reading."""
    observed_statuses: Mapping[ObjectKey, AnyStatus] = field(default_factory=dict)
    """Observed statuses of Services, Gateways and routes, as far as they are ours to write."""
    ends: str = ""
    """When the first order is over that is in force, and this isn't true any more; empty where there is none."""


ReadingAndPlan: TypeAlias = tuple[SnapshotResult, Plan]


def read_snapshot(
    home: Home, settings: Settings, resources: Iterable[HeldResource], *, keep: bool, glance: bool = False
) -> SnapshotResult:
    """Read everything.

    Args:
        home: which stack this is.
        settings: its configuration.
        resources: what its state has; nothing where another engine keeps it elsewhere.
        keep: remember what the sources say, for a time when they can't be read. Previews keep nothing.
        glance: nothing is changed after this, so that facts of the host which can't be known now are only complaints.

    Raises:
        SourceError: if a source can't be read and there is nothing to go by instead.
        ClientError: if the host or the ledger can't be read.

    """
    held = held_by(resources)
    refuse_another_runtime(settings, held)
    claims = read_claims()
    existing = existing_services(home, held, claims)
    sources, finders = find_sources(home, settings, keep=keep)
    read = [*finders, *(source_type(source.type).read(source, home, existing, keep=keep) for source in sources)]
    host, unknown = glance_at_host(home, settings, held) if glance else (read_host(home, settings, held), "")
    authority = read_authority(settings, held.authority, keep=keep)
    reported = notices_of_pools(settings, host), mode_notices(settings, read)
    result = assemble(home, settings, held, claims, [*read, *reported], host, authority)
    result = replace(result, complaints=(*result.complaints, *filter(None, (unknown,))))
    return with_overrides(result, read_overrides(home))


def with_overrides(result: SnapshotResult, overrides: Overrides) -> SnapshotResult:
    """Return what was read with the orders of commands."""
    read = result.snapshot
    services, routed = overrides.of(read.services), overrides.in_force(read.gateway_api)
    snapshot = replace(read, services=services, gateway_api=routed, overrides=overrides.by_service)
    return replace(result, snapshot=snapshot, notices=(*result.notices, *overrides.notices), ends=next_end(snapshot))


def notices_of_pools(settings: Settings, host: HostFacts, unknown: str = "") -> SourceRead:
    """Return the notices of the pools, and why the host is known from before only, in the form of a source's result."""
    stale = (unknown,) if unknown else ()
    return SourceRead(SourceResult(Parsed(notices=pool_notices(settings.pools, host)), stale))


def assemble(  # noqa: PLR0913, PLR0917 - one argument a thing that is read
    home: Home,
    settings: Settings,
    held: HeldByState,
    claims: tuple[Claim, ...],
    read: Sequence[SourceRead],
    host: HostFacts,
    certifies: AuthorityRead = NO_AUTHORITY,
) -> SnapshotResult:
    """Put what was read piece by piece together."""
    parsed = [source.reading.parsed for source in read]
    snapshot = replace(
        with_objects(home, parsed, settings.services),
        claims=claims,
        remembered=held.remembered,
        proxies=held.proxies,
        stack_proxies=held.stack_proxies,
        http_proxies=held.http_proxies,
        heaps=held.heaps,
        assignments=held.assignments,
        name_servers=held.name_servers,
        held_classes=held.classes,
        initialized_nodes=held.nodes,
        host=host,
        access={name: access for source in read for name, access in source.access.items()},
        health_ports={name: families for source in read for name, families in source.health_ports.items()},
        forwarding={name: facts for source in read for name, facts in source.forwarding.items()},
        classes={name: facts for source in read for name, facts in source.classes.items()},
        node_routes={name: routes for source in read for name, routes in source.node_routes.items()},
        contents=tuple(source.reading.contents for source in read if source.reading.contents),
        authority=certifies.authority,
    )
    observed_statuses = {key: stated for part in parsed for key, stated in part.observed_statuses}
    complaints, notices = (_some(source.reading.stale) for source in read), (_some(part.notices) for part in parsed)
    doubtful = _some(tuple(f"{claim.problem}; nobody new gets the address" for claim in unread(claims)))
    reported = (*flat(complaints), *doubtful, *certifies.complaints)
    return SnapshotResult(snapshot, reported, flat(notices), observed_statuses)


def with_objects(home: Home, parsed: Sequence[Parsed], others: OtherServices) -> Snapshot:
    """Return a snapshot that has only the objects of all sources, `others` than LoadBalancers as far as selected."""
    internal = selected(flat(part.internal for part in parsed), others)
    slices = flat(part.slices for part in parsed)
    pods = tuple(pods_of(internal, slices))
    return Snapshot(
        home,
        services=flat((*(part.services for part in parsed), internal, tuple(pod for pod, _ in pods))),
        malformed=flat(part.malformed for part in parsed),
        nodes=flat(with_ranges(part.nodes, part.ranges) for part in parsed),
        slices=flat((slices, *(of_pod for _, of_pod in pods))),
        external_ips=frozenset(address for part in parsed for address in part.external_ips),
        gateway_api=flat(part.gateway_api for part in parsed),
        hints=flat(part.hints for part in parsed),
    )


def _some(sentences: tuple[str, ...]) -> tuple[str, ...]:
    """Return the first sentences about a source, and how many there are besides."""
    more = len(sentences) - MAX_SENTENCES
    return (*sentences[:MAX_SENTENCES], f"and {more} more like these") if more > 0 else sentences


def read_claims(memory: Memo[ClaimFile | None] | None = None) -> tuple[Claim, ...]:
    """Read the claims of all stacks from the ledger; `memory` of earlier reads saves work. Raises ClientError.

    Unreadable claims come first.
    """
    memory = memory or Memo()
    claims = dict.fromkeys(claim for path in paths.ledgers() for claim in Ledger(path).claims(memory))
    memory.evict_unused()
    return tuple(sorted(claims, key=lambda claim: not claim.unread))


def unread(claims: Iterable[Claim]) -> Iterator[Claim]:
    """Return those of `read_claims` that can't be read just now."""
    return takewhile(lambda claim: claim.unread, claims)


def existing_services(home: Home, held: HeldByState, claims: Iterable[Claim]) -> set[ObjectKey]:
    """Return which Services of this stack hold something."""
    return {claim.owner.service for claim in (*held.remembered, *claims) if claim.owner.home == home}


def refuse_another_runtime(settings: Settings, held: HeldByState) -> None:
    """Refuse a second proxy for one Service: both would need the same addresses and socket. Raises SourceError."""
    shared, mode = any(is_shared(name) for name in held.stack_proxies), settings.proxies.mode
    own = [proxy for proxy in held.proxies if proxy.service.kind not in ROUTED]
    if shared if mode is Sharing.PER_SERVICE else own and not shared:
        running = Sharing.SHARED if shared else Sharing.PER_SERVICE
        raise SourceError(
            f"local-lb:proxies is {mode}, but this stack's proxies are {running}:"
            " destroy the stack first, then run up again"
        )
    for other in held.runtimes - {settings.runtime}:
        raise SourceError(
            f"local-lb:runtime is {settings.runtime}, but this stack's proxies run with {other}:"
            " destroy the stack first, then run up again"
        )


def read_host(home: Home, settings: Settings, held: HeldByState) -> HostFacts:
    """Find out what this host allows the stack's runtime. Raises SourceError, ClientError."""
    try:
        facts = runtime(settings.runtime).facts(home, settings, held.pids)
    except UnfitRuntimeError as error:
        raise SourceError(str(error)) from None
    return replace(facts, may_route=_may_route(settings))


def glance_at_host(home: Home, settings: Settings, held: HeldByState) -> tuple[HostFacts, str]:
    """Return the same within seconds, and why some of it is unknown. Raises SourceError, ClientError."""
    try:
        facts, unknown = runtime(settings.runtime).facts_at_a_glance(home, settings, held.pids)
    except UnfitRuntimeError as error:
        raise SourceError(str(error)) from None
    return facts if unknown else replace(facts, may_route=_may_route(settings)), unknown


def _may_route(settings: Settings) -> bool:
    """Find out whether routes of this host can be changed, where that matters: by this user, or by a container.

    Without a key for it an engine is asked only where the clusters are its own.
    """
    if settings.pod_routes not in {PodRouting.AUTO, PodRouting.HOST} or may_change_routes():
        return True
    if settings.pod_routes is PodRouting.HOST:
        return helper_may_route()
    is_local = any(finder.is_administered for finder in settings.finders)
    return is_local and not settings.publishes and helper_could_route()


def read_routes(settings: Settings, existing: HostFacts) -> HostFacts:
    """Reread only this host's routes and the addresses they prove. Raises ClientError."""
    return with_routes(existing, settings.pools, strict=settings.publishes)


def flat(parts: Iterable[tuple[_Part, ...]]) -> tuple[_Part, ...]:
    """Return all items of all parts, in order: the very tuple where one part has them all."""
    some = [part for part in parts if part]
    return some[0] if len(some) == 1 else tuple(chain.from_iterable(some))


def read_hostless(home: Home, settings: Settings, root: Path, nowhere: Path) -> SnapshotResult:
    """Read the manifests of every source, relative to `root`; no state, ledger, facts of a host, last good reading.

    For comparing two revisions where neither is deployed, as in CI. The host counts as one without limits that has
    every address; a notice reports where the result depends on that. `nowhere` is a directory without readings:
    content that can't be read is left out and complained of.

    Raises:
        SourceError: if a source's directory can't be read, or a source is a running cluster.

    """
    read = [source_type(source.type).compared(source, root, nowhere) for source in settings.sources]
    notices = [*(reading.parsed.notices for reading in read), unchecked(settings.pools)]
    objects = with_objects(home, [reading.parsed for reading in read], settings.services)
    snapshot = replace(objects, authority=unknown_authority(settings))
    return SnapshotResult(snapshot, flat(reading.stale for reading in read), flat(notices))


def holding(snapshot: Snapshot, plan: Plan) -> Snapshot:
    """Return the snapshot as it would be after `plan` was carried out: its addresses and proxies are held."""
    claims = tuple(
        Claim(address, placement.owner, placement.mapped)
        for placement in plan.placements
        for address in placement.addresses
    )
    return replace(
        snapshot,
        claims=claims,
        remembered=claims,
        proxies=tuple(
            HeldProxy(
                proxy.root,
                proxy.proxy.discovery,
                traits=ProxyTraits(
                    patient=_patient(proxy.proxy.listeners),
                    may_fail=next((listener.may_fail for listener in proxy.proxy.http), None),
                    heap=proxy.proxy.heap,
                    udp_only=proxy.proxy.udp_only,
                    datagrams=_datagrams(proxy.proxy),
                ),
            )
            for proxy in plan.proxies
            if proxy.root.cluster
        ),
        stack_proxies=tuple(proxy.proxy.name for proxy in plan.proxies if not proxy.key.cluster),
        http_proxies=frozenset(proxy.proxy.name for proxy in plan.proxies if proxy.proxy.may_serve_http),
        heaps={
            proxy.proxy.name: proxy.proxy.heap
            for proxy in plan.proxies
            if not proxy.key.cluster and proxy.proxy.heap is not None
        },
        assignments=(
            *(
                HeldProxyAssignment(placement.key, placement.proxy, _patient(placement.part.part.listeners))
                for placement in plan.placements
                if placement.part
            ),
            *(HeldProxyAssignment(proxy.root, proxy.proxy.name, whole=True) for proxy in plan.proxies if proxy.serves),
        ),
    )


def next_to(snapshot: Snapshot, others: Iterable[ReadingAndPlan]) -> Snapshot:
    """Return the snapshot as one of the same stack that leaves to others what they have, or are about to have.

    They are read and planned apart, and none of their Services is in the snapshot.
    """
    others = tuple(others)
    if not others:
        return snapshot
    given = [claim for result, plan in others for claim in holding(result.snapshot, plan).claims]
    used = {proxy.proxy.name for _, plan in others for proxy in plan.proxies}
    nodes = {address for other, _ in others for node in other.snapshot.nodes for address in node.addresses}
    return replace(
        snapshot,
        claims=tuple(dict.fromkeys((*snapshot.claims, *given))),
        stack_proxies=tuple(name for name in snapshot.stack_proxies if name not in used),
        external_ips=snapshot.external_ips.union(nodes, *(other.snapshot.external_ips for other, _ in others)),
    )


def _datagrams(proxy: Proxy) -> frozenset[str]:
    """Return the places of UDP listeners as `ProxyTraits.datagrams` has them."""
    udp = (listener.place for listener in proxy.listeners if listener.protocol is Protocol.UDP)
    return frozenset((*udp, *proxy.unbound))


def _patient(listeners: Iterable[Listener]) -> bool | None:
    """Return what the state would say of listeners (`ProxyTraits.patient`)."""
    return next((listener.patient for listener in listeners if listener.protocol is Protocol.TCP), None)


_HERE = frozenset(map(str, LOOPBACK.values()))


def mode_notices(settings: Settings, read: Iterable[SourceRead]) -> SourceRead:
    """Return the notices of running clusters that drop the `ipMode` of mapped ports, in the form of a source's result.

    An API before Kubernetes 1.30 does, and kube-proxy takes these ports for its own there. It shows in the written
    status: a Service with the annotation for mapped ports got a mode in the same patch.
    """
    if not settings.port_mapping:
        return SourceRead(SourceResult(Parsed()))
    live = sorted({name for source in read for name in _losing(source)})
    return SourceRead(SourceResult(Parsed(notices=tuple(map(_sentence, live)))))


def _losing(read: SourceRead) -> Iterator[ClusterName]:
    """Return the running clusters of a source that lost a mode."""
    for key, stated in read.reading.parsed.observed_statuses:
        if key.cluster in read.access and _has_lost(stated):
            yield key.cluster


def _has_lost(stated: AnyStatus) -> bool:
    return (
        isinstance(stated, ObservedStatus)
        and stated.claimed
        and bool(stated.mapped)
        and any(entry.ip in _HERE and not entry.mode for entry in stated.ingress)
    )


def _sentence(cluster: ClusterName) -> str:
    return (
        f"{cluster}: its API doesn't keep ipMode, as before Kubernetes 1.30, so kube-proxy takes what its Nodes send to"
        " their own 127.0.0.1 at ports of these Services; upgrade the cluster, or remove local-lb:portMapping"
    )
