"""Hypothesis strategies for what the planner takes: Services, settings, snapshots.

Small on purpose: few names, few addresses, so that Services meet. Everything drawn is what the parsers could produce;
an address outside every pool and one that is never handed out are among those that are asked for.

Strategies are made once and not for each example, and draw whole values where those are few: making and combining
strategies takes most of the time of a law.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from ipaddress import ip_address, ip_network
from itertools import product
from random import Random
from typing import Any, TypeVar

from hypothesis import strategies as st
from msgspec.structs import replace

from locallb.config.settings import Classes, Pool, Settings
from locallb.model.identities import (
    ClusterName,
    Family,
    Home,
    IPAddress,
    NodeName,
    ObjectKey,
    ObjectKind,
    Owner,
    Protocol,
    Uid,
)
from locallb.model.objects import (
    BackendChoice,
    Endpoint,
    EndpointPort,
    EndpointSlice,
    FamilyPolicy,
    IngressEntry,
    Node,
    Service,
    ServicePort,
    TrafficPolicy,
)
from locallb.model.ranges import AddressRange
from locallb.model.routes import HostAddresses, HostRoute, survey
from locallb.model.snapshot import Claim, HostFacts, Snapshot, Socket
from locallb.sources.entries import ManifestsSource

HOME = Home("project", "dev", "/srv/project")
OTHER_HOME = Home("project", "test", "/srv/project")
CLUSTERS = tuple(ClusterName(name) for name in ("one", "two"))
FAMILIES = ((Family.IPV4,), (Family.IPV6,), (Family.IPV4, Family.IPV6), (Family.IPV6, Family.IPV4))
IPV4 = tuple(ip_address("10.0.0.0") + number for number in range(12))
IPV6 = tuple(ip_address("fd00::") + number for number in range(12))
ODD = tuple(ip_address(text) for text in ("10.9.9.9", "fd99::9", "127.0.0.1", "::1"))
"""In no pool; the last two in no pool ever."""
CREATED = ("", "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z", "2026-01-03T00:00:00Z")
LABELS: Sequence[Mapping[str, str]] = ({}, {"tier": "web"}, {"tier": "db"})

LOCAL = ("ports", "source_ranges", "client_ip_affinity", "traffic_policy", "health_check_node_port")
"""What of a Service decides about no other one."""

Thing = TypeVar("Thing")


def sampled_evenly(*groups: Sequence[Thing]) -> st.SearchStrategy[Thing]:
    """Draw from each group as often as from another, whatever their sizes."""
    size = math.lcm(*map(len, groups))
    return st.sampled_from([thing for group in groups for thing in group for _ in range(size // len(group))])


CONTESTED = (*IPV4[:2], *IPV6[:2])
"""Few enough that claims, requests, statuses and the host meet on them."""
addresses: st.SearchStrategy[IPAddress] = sampled_evenly(CONTESTED, (*IPV4, *IPV6))
"""Addresses that some pool may have."""
askable: st.SearchStrategy[IPAddress] = sampled_evenly(CONTESTED, (*IPV4, *IPV6), ODD)
keys = st.sampled_from(
    [ObjectKey(*of, ObjectKind.SERVICE) for of in product(CLUSTERS, ["shop", "team"], [*"abcdefgh"])]
)
uids = st.sampled_from([Uid("u1"), Uid("u2"), Uid("")])
ports = st.sampled_from(
    [
        ServicePort(port, protocol, node_port=node_port)
        for port, protocol, node_port in product([80, 443, 8080], [Protocol.TCP, Protocol.UDP], range(30000, 30011))
    ]
)


def one_a_family(of: st.SearchStrategy[IPAddress], at_least: int = 0) -> st.SearchStrategy[tuple[IPAddress, ...]]:
    """Draw none, one or two addresses, at most one of each family."""
    return st.lists(of, min_size=at_least, max_size=2, unique_by=lambda address: address.version).map(tuple)


_families = st.sampled_from(FAMILIES)
_dual = st.sampled_from([FamilyPolicy.PREFER_DUAL, FamilyPolicy.REQUIRE_DUAL])
_port_lists = st.lists(ports, min_size=1, max_size=3, unique_by=str).map(tuple)
_created = st.sampled_from(CREATED)
_requested = st.just(()) | one_a_family(askable)
_ingress = _requested.map(lambda drawn: tuple(map(IngressEntry, drawn)))
_policies = st.sampled_from(TrafficPolicy)
_labels = st.sampled_from(LABELS)


@st.composite
def services(draw: st.DrawFn, key: st.SearchStrategy[ObjectKey] = keys) -> Service:
    families = draw(_families)
    return Service(
        key=draw(key),
        ports=draw(_port_lists),
        uid=draw(uids),
        created=draw(_created),
        families=families,
        family_policy=draw(_dual) if len(families) > 1 else FamilyPolicy.SINGLE,
        requested=draw(_requested),
        client_ip_affinity=draw(st.booleans()),
        traffic_policy=draw(_policies),
        labels=draw(_labels),
        ingress=draw(_ingress),
    )


def service_lists(max_size: int = 8) -> st.SearchStrategy[list[Service]]:
    return st.lists(services(), max_size=max_size, unique_by=lambda service: service.key)


def span(first: str, last: str) -> AddressRange:
    return AddressRange(ip_address(first), ip_address(last))


_places = st.integers(0, 11)
ranges: st.SearchStrategy[AddressRange] = st.tuples(st.sampled_from([IPV4, IPV6]), _places, _places).map(
    lambda drawn: AddressRange(drawn[0][min(drawn[1:])], drawn[0][max(drawn[1:])])
)
"""Ranges of one to twelve addresses of one family."""
pools = st.builds(
    Pool,
    name=st.just(""),
    ranges=st.lists(ranges, min_size=1, max_size=2).map(tuple),
    exclude=st.just(()) | st.lists(ranges, max_size=1).map(tuple),
    priority=st.integers(-1, 1),
    namespaces=st.sampled_from([frozenset(), frozenset(), frozenset({"shop"})]),
    selector=st.sampled_from([{}, {}, {"tier": "web"}]),
)
pool_lists = st.lists(pools, min_size=1, max_size=3).map(
    lambda drawn: tuple(replace(pool, name=f"pool-{number}") for number, pool in enumerate(drawn))
)
"""Up to three pools; they may overlap, which the parser refuses and the allocator must survive."""


pins: st.SearchStrategy[Mapping[str, tuple[IPAddress, ...]]] = st.dictionaries(
    st.sampled_from(["shop/a", "shop/b", "team/a", "shop/*", "*/a"]), one_a_family(addresses, at_least=1), max_size=2
).filter(
    lambda drawn: (
        len({address for addresses in drawn.values() for address in addresses}) == sum(map(len, drawn.values()))
    )
)


settings = st.builds(
    Settings,
    st.just(tuple(ManifestsSource(cluster, f"manifests/{cluster}") for cluster in CLUSTERS)),
    pool_lists,
    st.just({}) | pins,
    st.just(Classes()),
)
"""Configurations with a source for each cluster."""


def claims(
    of: st.SearchStrategy[ObjectKey] = keys, homes: Sequence[Home] = (HOME, HOME, OTHER_HOME)
) -> st.SearchStrategy[tuple[Claim, ...]]:
    """Draw claims, in any combination: of Services that are there or not, two on one address, other stacks'."""
    drawn = st.tuples(addresses, st.sampled_from(homes), of, uids)
    return st.lists(drawn.map(lambda parts: Claim(parts[0], Owner(*parts[1:]))), max_size=6, unique=True).map(tuple)


def route(destination: str, kind: str = "local", device: str = "lo", table: int = 255) -> HostRoute:
    """Write a route, by default of the local table."""
    return HostRoute(ip_network(destination), kind, device, table=table)


def having_all_but(
    absent: Collection[IPAddress] = (), own: Collection[IPAddress] = (), connected: Collection[str] = ()
) -> HostAddresses:
    """Make a host that has every address but `absent`; of `own` eth0 has each, and it leads to `connected`."""
    return survey(
        (
            route("0.0.0.0/0"),
            route("::/0"),
            *(route(str(address), "unreachable") for address in absent),
            *(route(str(address), device="eth0") for address in own),
            *(route(network, "unicast", "eth0", 254) for network in connected),
        )
    )


hosts = st.builds(
    HostFacts,
    sockets=st.lists(
        st.builds(
            Socket, st.sampled_from([*IPV4, *IPV6, ip_address("::")]), st.just(80), st.just(Protocol.TCP), st.just("x")
        ),
        max_size=2,
    ).map(tuple),
    addresses=st.builds(
        having_all_but,
        st.frozensets(addresses, max_size=3),
        st.frozensets(addresses, max_size=2),
        st.lists(st.sampled_from(["fd00::/127", "fd00::8/125", "10.0.0.0/28"]), max_size=1),
    ),
)
nodes = st.builds(
    Node, st.sampled_from(CLUSTERS), st.just(NodeName("node")), st.lists(addresses, max_size=1, unique=True).map(tuple)
)
_node_lists = st.lists(nodes, max_size=1).map(tuple)


@st.composite
def snapshots(draw: st.DrawFn) -> Snapshot:
    """Draw a snapshot, however unlikely: damaged ledgers, contradicting states, foreign hands in every status."""
    services = draw(service_lists())
    present = st.sampled_from([service.key for service in services]) if services else keys
    return Snapshot(
        home=HOME,
        services=tuple(services),
        nodes=draw(_node_lists),
        claims=draw(claims(present | keys)),
        remembered=draw(claims(present | keys, homes=[HOME])),
        host=draw(hosts),
    )


@st.composite
def with_pods(draw: st.DrawFn, before: Snapshot) -> Snapshot:
    """Take a snapshot with EndpointSlices of its Services, of which some want pods."""
    wanting = st.sampled_from([None, BackendChoice.PODS])
    served = tuple(replace(service, backends=draw(wanting)) for service in before.services)
    endpoints = st.builds(Endpoint, st.tuples(st.sampled_from(IPV4)), st.booleans())
    slices = st.builds(
        EndpointSlice,
        st.sampled_from([service.key for service in served] or [ObjectKey(CLUSTERS[0], "shop", "a")]),
        st.just(Family.IPV4),
        st.just((EndpointPort(8080),)),
        st.tuples(endpoints),
    )
    return replace(before, services=served, slices=tuple(draw(st.lists(slices, max_size=4))))


@st.composite
def with_few_others(draw: st.DrawFn, before: Snapshot, donor: Snapshot) -> Snapshot:
    """Take a snapshot with some of its Services and EndpointSlices a little different, each in its place."""
    services, slices = list(before.services), list(before.slices)
    for place in draw(st.sets(st.integers(0, len(services) - 1), max_size=2)) if services and donor.services else ():
        other = draw(st.sampled_from(donor.services))
        names = draw(st.sets(st.sampled_from(LOCAL), max_size=2)) | draw(st.sampled_from((set(), {"annotations"})))
        services[place] = replace(services[place], **{name: getattr(other, name) for name in names})
    for place in draw(st.sets(st.integers(0, len(slices) - 1), max_size=2)) if slices else ():
        endpoints = draw(st.sampled_from([one.endpoints for one in (*slices, *donor.slices)]))
        owned_by = draw(st.sampled_from([one.service for one in slices]))
        slices[place] = replace(slices[place], endpoints=endpoints, service=owned_by)
    host = replace(before.host, **draw(_busier)) if draw(st.booleans()) else before.host
    return replace(before, services=tuple(services), slices=tuple(slices), host=host)


_busier: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {"watches": st.sampled_from([0, 3, 4, 6, 9, 10**6])},
    optional={
        "sockets": st.sets(
            st.builds(
                Socket,
                st.sampled_from([*IPV4[:4], *IPV6[:2], *ODD, ip_address("::"), ip_address("0.0.0.0")]),
                st.sampled_from([80, 443, 5353]),
                st.sampled_from([Protocol.TCP, Protocol.UDP]),
                st.sampled_from(["x", "y"]),
            ),
            max_size=3,
        ).map(lambda sockets: tuple(sorted(sockets, key=str)))
    },
)
"""What else listens on a host, or watches files there."""


def shuffled(snapshot: Snapshot, seed: int) -> Snapshot:
    """Return the same snapshot in another order."""
    random = Random(seed)

    def mixed(things: tuple[Thing, ...]) -> tuple[Thing, ...]:
        return tuple(random.sample(things, len(things)))

    return replace(
        snapshot,
        services=mixed(snapshot.services),
        nodes=mixed(snapshot.nodes),
        slices=mixed(snapshot.slices),
        claims=mixed(snapshot.claims),
        remembered=mixed(snapshot.remembered),
        proxies=mixed(snapshot.proxies),
    )
