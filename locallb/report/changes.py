"""The comparison of two sides, and its types: the change of each Service, every difference, and the room in each pool.

The room of a pool is the number of its addresses that remain free once a plan is applied. Not here: reading a side
(`deployed`, `sides`), and violated policies (`policies`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from enum import StrEnum
from ipaddress import ip_network

from msgspec import Struct, field
from msgspec.structs import replace

from locallb.config.candidates import Candidates, candidates, possible
from locallb.config.settings import Settings
from locallb.model.identities import Family, IPAddress, IPNetwork, ObjectKey
from locallb.model.ranges import covered
from locallb.model.reasons import Problem
from locallb.model.snapshot import Place, Snapshot
from locallb.planning.planned import Plan
from locallb.report.sides import Balancer, Port, Side


class PoolRoom(Struct, frozen=True):
    """One family of one pool: `size` addresses, of which our Services have `used`, and `free` are available.

    The rest is held by others, kept by a pin, or not usable on this host.
    """

    pool: str
    family: Family
    size: int
    used: int
    free: int

    @property
    def unavailable(self) -> int:
        """The number of addresses that others hold, a pin keeps, or this host hasn't."""
        return self.size - self.used - self.free


def rooms(side: Side, snapshot: Snapshot, settings: Settings) -> tuple[PoolRoom, ...]:
    """Count the addresses of every pool once all is as on `side`; `snapshot` knows what others hold."""
    return rooms_for({a for balancer in side.balancers.values() for a in balancer.addresses}, snapshot, settings)


def rooms_of(plan: Plan, snapshot: Snapshot, settings: Settings) -> tuple[PoolRoom, ...]:
    """Count the addresses of every pool once all is as planned."""
    return rooms_for({address for each in plan.placements for address in each.addresses}, snapshot, settings)


def rooms_for(used: AbstractSet[IPAddress], snapshot: Snapshot, settings: Settings) -> tuple[PoolRoom, ...]:
    """Count the addresses of every pool, with the `used` ones of our Services."""
    claimed = {*used, *_not_free(snapshot, settings)}
    return tuple(
        _room(pool.name, usable, possible(pool, family, snapshot.host), used, claimed)
        for pool in settings.pools
        for family in Family
        if (usable := candidates(pool, family)).size
    )


def _room(
    name: str, candidates: Candidates, here: Candidates, used: Collection[IPAddress], claimed: Collection[IPAddress]
) -> PoolRoom:
    free = here.size - sum(address in here for address in claimed)
    return PoolRoom(name, candidates.family, candidates.size, sum(address in candidates for address in used), free)


def _not_free(snapshot: Snapshot, settings: Settings) -> Iterator[IPAddress]:
    """Return the addresses that others hold or that are reserved; ours that no Service has any more become free."""
    yield from (claim.address for claim in snapshot.claims if claim.owner.home != snapshot.home)
    yield from _flat(settings.pins.values())
    yield from _flat(node.addresses for node in snapshot.nodes)
    yield from (socket.address for socket in snapshot.host.sockets)


def _flat(groups: Iterable[Iterable[IPAddress]]) -> Iterator[IPAddress]:
    return (address for addresses in groups for address in addresses)


class Change(StrEnum):
    """What happens to a Service's load balancer."""

    ADDED = "added"
    """It gets one."""
    CHANGED = "changed"
    """It keeps one that is declared differently."""
    REPAIRED = "repaired"
    """Nothing is declared differently, but what is there isn't as declared and is put right."""
    LOST = "lost"
    """It had one, is still there, and is rejected now."""
    REMOVED = "removed"
    """It had one and isn't there any more, or isn't ours."""
    REJECTED = "rejected"
    """It had none and gets none."""
    UNCHANGED = "unchanged"


QUIET = frozenset({Change.REJECTED, Change.UNCHANGED})
"""Nothing is done for these."""


class What(StrEnum):
    """In what a load balancer differs."""

    ADDRESSES = "addresses"
    PORT = "port"
    """A port that is new or gone."""
    SOURCES = "sources"
    BACKENDS = "backends"
    AFFINITY = "affinity"
    PROBLEM = "problem"
    ROUTES = "routes"
    """Routes of a Gateway or of Ingresses that come or go."""
    NAMES = "names"
    """Names in the stack's zones, each with its addresses."""
    LISTENS = "listens"
    """The addresses where a port answers; empty where it is closed."""
    UID = "uid"
    ENVOY = "envoy"
    CONTAINER = "container"
    """Image, limits or network of its container."""
    CONFIGURATION = "configuration"
    """Any other change of its proxy's configuration."""
    RESOURCES = "resources"
    """Resources that aren't as declared; only where a Service is repaired."""


class PortDifference(Struct, frozen=True):
    """One difference: its port (empty for the whole Service), and the texts before and after."""

    what: What
    port: str = ""
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()


class ServiceChange(Struct, frozen=True):
    """One Service on both sides."""

    key: ObjectKey
    change: Change
    before: Balancer | None = None
    after: Balancer | None = None
    problems: tuple[Problem, ...] = ()
    """Why it is rejected on the new side; on a Service that has a load balancer, why a second one of its name isn't."""
    differences: tuple[PortDifference, ...] = ()
    exposures: tuple[Exposure, ...] = ()
    narrowings: tuple[Narrowing, ...] = ()

    @property
    def moved(self) -> bool:
        """Return whether it had addresses and doesn't keep all of them, although it is still there."""
        if self.before is None or self.change is Change.REMOVED:
            return False
        return not set(self.before.addresses) <= set(self.after.addresses if self.after else ())


class Gate(StrEnum):
    """What a stack's policies can forbid."""

    ADDRESS_CHANGES = "addressChanges"
    SOURCE_RANGES = "sourceRanges"
    PORTS = "ports"
    HEADROOM = "headroom"
    HOSTNAMES = "hostnames"
    TLS = "tls"


class Violation(Struct, frozen=True):
    """One thing that a policy forbids: a sentence with the object, the value and the remedy."""

    gate: Gate
    message: str
    advisory: bool = False
    """Whether it only warns."""


class RequestChange(Struct, frozen=True):
    """A request that goes elsewhere: what becomes of it on both sides."""

    request: str
    before: str
    after: str


class SampleRequests(Struct, frozen=True):
    """Sample requests on both sides."""

    compared: int = 0
    """The number of all; 0 where none are given."""
    moved: tuple[RequestChange, ...] = ()
    """The requests that go elsewhere."""


class Report(Struct, frozen=True):
    """Everything that a reader of a change wants to know."""

    stack: str
    old: str
    new: str
    services: tuple[ServiceChange, ...]
    rooms: tuple[PoolRoom, ...] = ()
    settings: tuple[str, ...] = ()
    """Keys of the stack's configuration that differ between the sides."""
    notices: tuple[str, ...] = ()
    complaints: tuple[str, ...] = ()
    """What couldn't be read: with one of these the report isn't the whole truth."""
    violations: tuple[Violation, ...] = ()
    requests: SampleRequests = SampleRequests()
    places: Mapping[ObjectKey, Place] = field(default_factory=dict)
    """Where Services are written, for formats that point there."""

    @property
    def changes(self) -> bool:
        return any(service.change not in QUIET for service in self.services)

    def count(self, change: Change) -> int:
        return sum(service.change is change for service in self.services)


def compare(
    old: Side, new: Side, touched: Mapping[ObjectKey, Collection[str]] | None = None
) -> tuple[ServiceChange, ...]:
    """Compare two sides, Service by Service, sorted by key.

    `touched` names the resources that a run of the engine would change, where one was asked: it knows what isn't there
    any more although nothing is declared differently.
    """
    keys = sorted({*old.balancers, *new.balancers, *new.rejections})
    return tuple(_compared(key, old, new, (touched or {}).get(key, ())) for key in keys)


def _compared(key: ObjectKey, old: Side, new: Side, touched: Collection[str]) -> ServiceChange:
    before, after, problems = old.balancers.get(key), new.balancers.get(key), new.rejections.get(key, ())
    change = ServiceChange(key, _kind(before, after, problems), before, after, problems)
    if before is None or after is None:
        change = replace(change, differences=tuple(_of_routes(before, after)))
    else:
        change = replace(change, differences=tuple(_differences(before, after)))
        if change.change is Change.UNCHANGED and touched:
            resources = PortDifference(What.RESOURCES, after=tuple(sorted(touched)))
            change = replace(change, change=Change.REPAIRED, differences=(*change.differences, resources))
    return replace(change, exposures=exposures(before, after), narrowings=narrowings(before, after))


def _kind(before: Balancer | None, after: Balancer | None, problems: tuple[Problem, ...]) -> Change:
    if after is None:
        if before is None:
            return Change.REJECTED
        return Change.LOST if problems else Change.REMOVED
    if before is None:
        return Change.ADDED
    return Change.UNCHANGED if before.fingerprint == after.fingerprint else Change.CHANGED


def _differences(before: Balancer, after: Balancer) -> Iterator[PortDifference]:
    existing = [*_of_whole(before, after), *_of_ports(before, after), *_of_routes(before, after)]
    yield from existing
    if not existing and before.fingerprint != after.fingerprint:
        yield PortDifference(What.CONFIGURATION)


def _of_whole(before: Balancer, after: Balancer) -> Iterator[PortDifference]:
    if before.addresses != after.addresses:
        yield PortDifference(What.ADDRESSES, "", _texts(before.addresses), _texts(after.addresses))
    if before.names != after.names:
        yield PortDifference(What.NAMES, "", before.names, after.names)
    if before.uid != after.uid:
        yield PortDifference(What.UID, "", (before.uid,), (after.uid,))
    if before.envoy != after.envoy:
        yield PortDifference(What.ENVOY, "", (before.envoy,), (after.envoy,))
    if before.container != after.container:
        was = tuple(fact for fact in before.container if fact not in after.container)
        yield PortDifference(
            What.CONTAINER, "", was, tuple(fact for fact in after.container if fact not in before.container)
        )


def _of_ports(before: Balancer, after: Balancer) -> Iterator[PortDifference]:
    old = {port.label: port for port in before.ports}
    new = {port.label: port for port in after.ports}
    for label in dict.fromkeys((*old, *new)):
        was, now = old.get(label), new.get(label)
        if was is None or now is None:
            yield PortDifference(What.PORT, label, (label,) if was else (), (label,) if now else ())
        else:
            yield from _of_port(was, now, moved=before.addresses != after.addresses)


def _of_routes(before: Balancer | None, after: Balancer | None) -> Iterator[PortDifference]:
    """Return the routes that only one side has, where both are known; another order of theirs is none."""
    was, now = (side.routes if side else () for side in (before, after))
    if was is None or now is None:
        return
    removed, new = dict.fromkeys(was), dict.fromkeys(now)
    if removed.keys() != new.keys():
        only = tuple(line for line in removed if line not in new), tuple(line for line in new if line not in removed)
        yield PortDifference(What.ROUTES, "", *only)


def _of_port(was: Port, now: Port, *, moved: bool) -> Iterator[PortDifference]:
    if was.sources is not None and now.sources is not None and was.sources != now.sources:
        yield PortDifference(What.SOURCES, now.label, _texts(was.sources), _texts(now.sources))
    if was.backends != now.backends:
        yield PortDifference(What.BACKENDS, now.label, was.backends, now.backends)
    if was.affinity is not None and now.affinity is not None and was.affinity != now.affinity:
        yield PortDifference(What.AFFINITY, now.label, _affinity(was), _affinity(now))
    if was.listens != now.listens and (not moved or bool(was.listens) != bool(now.listens)):
        yield PortDifference(What.LISTENS, now.label, _texts(was.listens), _texts(now.listens))
    if was.problem != now.problem:
        yield PortDifference(What.PROBLEM, now.label, _some(was.problem), _some(now.problem))


def _affinity(port: Port) -> tuple[str, ...]:
    return ("ClientIP" if port.affinity else "None",)


def _some(text: str) -> tuple[str, ...]:
    return (text,) if text else ()


def _texts(things: Collection[object]) -> tuple[str, ...]:
    return tuple(str(item) for item in things)


class Wider(StrEnum):
    """In which way more can be reached."""

    SERVICE = "new-service"
    FAMILY = "new-address"
    """An address of a family in which it had none."""
    PORT = "new-port"
    OPENS = "port-opens"
    """A port that was closed and has backends now."""
    UNRESTRICTED = "source-ranges-removed"
    SOURCES = "source-ranges-widened"


class Exposure(Struct, frozen=True):
    """One thing that became reachable."""

    kind: Wider
    ports: tuple[str, ...] = ()
    addresses: tuple[IPAddress, ...] = ()
    sources: tuple[IPNetwork, ...] = ()
    """Newly allowed clients; empty means all. For widened ranges, only the new ones."""
    before: tuple[IPNetwork, ...] = ()
    """Who might come before; only where ranges were removed or widened."""


class Narrower(StrEnum):
    """In which way less can be reached: what `Wider` is seen from the other side."""

    SERVICE = "removed-service"
    FAMILY = "lost-address"
    PORT = "removed-port"
    CLOSES = "port-closes"
    """A port that lost its last backend."""
    RESTRICTED = "source-ranges-added"
    SOURCES = "source-ranges-narrowed"


_OBSERVED_BACKWARDS = dict(zip(Wider, Narrower, strict=True))


class Narrowing(Struct, frozen=True):
    """One thing that can't be reached any more."""

    kind: Narrower
    ports: tuple[str, ...] = ()
    addresses: tuple[IPAddress, ...] = ()
    sources: tuple[IPNetwork, ...] = ()
    """Clients that lose access, at least from some addresses; empty means all."""
    after: tuple[IPNetwork, ...] = ()
    """Who may still come; only where ranges were added or narrowed."""


ANY_SOURCE = {Family.IPV4: ip_network("0.0.0.0/0"), Family.IPV6: ip_network("::/0")}


def exposures(before: Balancer | None, after: Balancer | None) -> tuple[Exposure, ...]:
    """Return what became reachable of one Service."""
    if after is None or not after.addresses:
        return ()
    if before is None or not before.addresses:
        return tuple(_new_service(after))
    return _joined((*_families(before, after), *_ports(before, after)))


def narrowings(before: Balancer | None, after: Balancer | None) -> tuple[Narrowing, ...]:
    """Return what of one Service can't be reached any more: all that would be exposed by going back."""
    return tuple(
        Narrowing(
            _OBSERVED_BACKWARDS[exposure.kind], exposure.ports, exposure.addresses, exposure.sources, exposure.before
        )
        for exposure in exposures(after, before)
    )


def _joined(exposures: Iterable[Exposure]) -> tuple[Exposure, ...]:
    """Merge changes that differ in their ports only."""
    ports: dict[Exposure, tuple[str, ...]] = {}
    for exposure in exposures:
        alike = replace(exposure, ports=())
        ports[alike] = (*ports.get(alike, ()), *exposure.ports)
    return tuple(replace(alike, ports=labels) for alike, labels in ports.items())


def _new_service(after: Balancer) -> Iterator[Exposure]:
    """One exposure for each set of sources: in practice one."""
    for sources in dict.fromkeys(port.sources or () for port in after.ports):
        labels = tuple(port.label for port in after.ports if (port.sources or ()) == sources)
        yield Exposure(Wider.SERVICE, labels, after.addresses, sources)


def _families(before: Balancer, after: Balancer) -> Iterator[Exposure]:
    had = {Family.of(address) for address in before.addresses}
    new = tuple(address for address in after.addresses if Family.of(address) not in had)
    if new:
        labels = tuple(port.label for port in after.ports)
        yield Exposure(Wider.FAMILY, labels, new, next((port.sources or () for port in after.ports), ()))


def _ports(before: Balancer, after: Balancer) -> Iterator[Exposure]:
    old = {port.label: port for port in before.ports}
    for port in after.ports:
        mine = (port.label,), after.addresses, port.sources or ()
        was = old.get(port.label)
        if was is None:
            yield Exposure(Wider.PORT, *mine)
        elif port.listens and was.problem and not was.listens:
            yield Exposure(Wider.OPENS, *mine)
        if was is not None and was.sources is not None and was.sources != port.sources:
            yield from _sources(was.sources, port, after)


def _sources(was: tuple[IPNetwork, ...], port: Port, after: Balancer) -> Iterator[Exposure]:
    if port.sources is None or _is_unrestricted(was, after.addresses):
        return
    if _is_unrestricted(port.sources, after.addresses):
        yield Exposure(Wider.UNRESTRICTED, (port.label,), after.addresses, (), was)
        return
    new = tuple(network for network in port.sources if not covered(network, was))
    if new:
        yield Exposure(Wider.SOURCES, (port.label,), after.addresses, new, was)


def _is_unrestricted(sources: tuple[IPNetwork, ...], addresses: Iterable[IPAddress]) -> bool:
    return not sources or all(covered(ANY_SOURCE[Family.of(address)], sources) for address in addresses)


def is_open(sources: tuple[IPNetwork, ...] | None, addresses: Iterable[IPAddress]) -> bool:
    """Return whether all clients may reach one of the addresses; unknown sources count as closed."""
    if sources is None:
        return False
    return not sources or any(covered(ANY_SOURCE[Family.of(address)], sources) for address in addresses)
