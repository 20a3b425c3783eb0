"""Changes of one Service that concern others, or the rest of the plan: a case for each way."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address, ip_network
from typing import Any

import pytest
from msgspec.structs import replace

from locallb.config.parsing import parse_settings
from locallb.config.settings import Pool, Settings
from locallb.envoy import watches
from locallb.kubernetes.object_parsing import parse_objects
from locallb.model.faults import Fault
from locallb.model.identities import Family, ObjectKey, Owner, Protocol, SharingKey
from locallb.model.memory import AnyMemo
from locallb.model.objects import (
    BackendChoice,
    Discovery,
    Endpoint,
    EndpointPort,
    EndpointSlice,
    FamilyPolicy,
    IngressEntry,
    ProxyProtocol,
    Service,
    TrafficPolicy,
)
from locallb.model.ranges import AddressRange
from locallb.model.routes import HostAddresses, HostRoute
from locallb.model.snapshot import Claim, HostFacts, Socket
from locallb.planning.plan import make_plan
from locallb.planning.planned import Plan
from tests.planning.two_services import HOME, NODE, OWN, A, B, C, port, service, snapshot
from tests.support.gateway_objects import gateway, gateway_class, route
from tests.support.gateway_objects import service as cluster_ip

FIRST, SECOND, ELSEWHERE = (ip_address(f"127.77.0.{number}") for number in (1, 2, 9))
TWO = Pool("two", (AddressRange(FIRST, SECOND),))
WEB = Pool("web", (AddressRange(ELSEWHERE, ELSEWHERE),), priority=1, selector={"tier": "web"})
SETTINGS = Settings((), (TWO,))
ANY_HOST = HostFacts()
TO_PODS = replace(OWN, backends=BackendChoice.PODS)


def pods(*addresses: str, of: ObjectKey = A.key) -> EndpointSlice:
    endpoints = tuple(Endpoint((ip_address(address),), node=NODE.name) for address in addresses)
    named = tuple(EndpointPort(9376, name=str(number)) for number in (8080, 8081, 9090))
    return EndpointSlice(of, Family.IPV4, named, endpoints)


STAYING = pods("10.0.0.7"), pods("10.0.0.8", of=B.key)


@dataclass(frozen=True)
class Case:
    """What changes, and what must be so afterwards, which isn't so before."""

    after: tuple[Service, ...]
    concerns: Callable[[Plan], bool]
    before: tuple[Service, ...] = (A, B)
    settings: Settings = OWN
    host: HostFacts = ANY_HOST
    slices: tuple[tuple[EndpointSlice, ...], tuple[EndpointSlice, ...]] = ((), ())
    others: Mapping[str, Any] = field(default_factory=dict)


def refused(name: str) -> Callable[[Plan], bool]:
    """Return what says whether a Service gets nothing."""
    return lambda plan: any(one.key.name == name for one in plan.rejections)


def has(name: str, *addresses: object) -> Callable[[Plan], bool]:
    """Return what says whether a Service has these addresses."""
    return lambda plan: [one.addresses for one in plan.placements if one.key.name == name] == [addresses]


def ports_of(name: str, *listening: int) -> Callable[[Plan], bool]:
    """Return what says at which ports a Service listens."""

    def contains(plan: Plan) -> bool:
        some = [one.ports for one in plan.placements if one.key.name == name]
        return [tuple(each.port.number for each in ports if each.listeners) for ports in some] == [listening]

    return contains


def reported(*terms: str) -> Callable[[Plan], bool]:
    """Return what says whether users hear of something."""
    return lambda plan: any(all(word in text for word in terms) for text in (*plan.notices, *plan.left_out))


def learns(name: str, way: Discovery) -> Callable[[Plan], bool]:
    """Return what says how the proxy of a Service learns endpoints."""
    return lambda plan: any(one.owner.service.name == name and one.proxy.discovery is way for one in plan.proxies)


def free_for(*upstreams: int) -> HostFacts:
    """Have a host with instances for proxies that have so many upstreams."""
    return HostFacts(watches=sum(watches(Discovery.EDS, number) for number in upstreams))


BRIDGE = HostRoute(ip_network("172.18.0.0/16"), "unicast", "br-kind")
NEAR = HostRoute(ip_network("10.0.0.0/24"), "unicast", "br-kind", ip_address("172.18.0.3"))
LOOPBACK = AddressRange(ip_address("127.0.0.0"), ip_address("127.255.255.255"))
WITH_ROUTES = HostFacts(addresses=HostAddresses((LOOPBACK,), routes=(BRIDGE, NEAR)), routes=(BRIDGE, NEAR))
JOINING = tuple(replace(one, sharing_key=SharingKey("x")) for one in (A, B))
GATEWAY = parse_objects(C, [gateway_class(), gateway(), cluster_ip("api", {"port": 8080, "name": "8080"}), route()])
API = ObjectKey(C, "shop", "api")
FAULT = Fault("2999-01-01T00:00:00Z", refuse=100)
DNS = parse_settings(
    {
        "sources": [{"manifests": "m", "name": "demo"}],
        "dns": {"zones": [{"zone": "test", "embedded": "127.0.0.77:5300"}]},
    }
)


def backends(plan: Plan, name: str) -> set[str]:
    """Return where connections to a Service, or to a Gateway, go."""
    mine = (one.proxy for one in plan.proxies if one.owner.service.name == name)
    return {str(each.address) for proxy in mine for upstream in proxy.upstreams for each in upstream.backends}


CASES: Mapping[str, Case] = {
    "its only port needs a right": Case((service("a", 80), B), refused("a"), host=HostFacts(1024)),
    "one of its ports needs a right": Case(
        (replace(A, ports=(port(80), port(443), port(8080))), B), ports_of("a", 443, 8080), host=HostFacts(81)
    ),
    "Envoy has no listener for it": Case((replace(A, ports=(port(7, Protocol.SCTP),)), B), refused("a")),
    "somebody has its port at every address": Case(
        (service("a", 9090), B),
        refused("a"),
        host=HostFacts(sockets=(Socket(ip_address("0.0.0.0"), 9090, Protocol.TCP),)),
    ),
    "another user's process has its port at its address": Case(
        (service("a", 9090),),
        has("a", SECOND),
        (A,),
        SETTINGS,
        HostFacts(sockets=(Socket(FIRST, 9090, Protocol.TCP, foreign=True, alone=True),)),
        others={"claims": (Claim(FIRST, Owner(HOME, A.key)),)},
    ),
    "its only port needed a right": Case((A, B), ports_of("a", 8080), (service("a", 80), B), host=HostFacts(1024)),
    "datagrams get no PROXY protocol": Case(
        (replace(A, ports=(port(53, Protocol.UDP),), proxy_protocol=ProxyProtocol.V2), B),
        reported("a port 53/UDP", "PROXY protocol"),
        (replace(A, proxy_protocol=ProxyProtocol.V2), B),
    ),
    "connections go by NodePorts, which routes would spare": Case(
        (A,),
        reported("demo: connections go by NodePorts"),
        (A,),
        host=WITH_ROUTES,
        slices=((pods("10.0.0.7"),), (pods("10.0.0.7", "10.244.1.7"),)),
    ),
    "connections go by NodePorts no more": Case(
        (A,),
        lambda plan: not plan.left_out,
        (A,),
        host=WITH_ROUTES,
        slices=((pods("10.244.1.7"),), (pods("10.0.0.7"),)),
    ),
    "who shares the address has the port": Case(
        (replace(JOINING[0], ports=B.ports), JOINING[1]), lambda plan: len(addresses(plan)) == 2, JOINING
    ),
    "who shares the address has another policy": Case(
        (replace(JOINING[0], traffic_policy=TrafficPolicy.LOCAL), JOINING[1]),
        lambda plan: len(addresses(plan)) == 2,
        JOINING,
    ),
    "who shares the address has the port no more": Case(
        JOINING,
        lambda plan: len(addresses(plan)) == 1,
        (replace(JOINING[0], ports=B.ports), JOINING[1]),
    ),
    "it begins to share": Case(JOINING, lambda plan: len(addresses(plan)) == 1, (A, JOINING[1])),
    "it shares no more": Case((A, JOINING[1]), lambda plan: len(addresses(plan)) == 2, JOINING),
    "its class is another one": Case(
        (replace(A, load_balancer_class="x"), B), reported("1 Service left out", "class x", "demo/shop/a")
    ),
    "its labels aren't those of the stack": Case(
        (A, replace(B, labels={"tier": "web"})),
        reported("1 Service left out", "demo/shop/a"),
        tuple(replace(one, labels={"tier": "web"}) for one in (A, B)),
        replace(OWN, selector={"tier": "web"}),
    ),
    "another namespace is in its place": Case(
        (replace(A, key=ObjectKey(C, "team", "a")), B),
        reported("1 Service left out", "namespace team"),
        settings=replace(OWN, namespaces=frozenset({"shop"})),
    ),
    "it is being deleted": Case((replace(A, deleting=True), B), lambda plan: len(plan.placements) == 1),
    "its labels open another pool": Case(
        (replace(A, labels={"tier": "web"}), B),
        has("a", ELSEWHERE),
        settings=Settings((), (TWO, WEB)),
    ),
    "the older one asks for an address that the other has": Case(
        (replace(A, requested=(FIRST,)), B),
        has("b", SECOND),
        (replace(A, requested=(SECOND,)), B),
        SETTINGS,
    ),
    "it asks for an address that an older one has": Case(
        (replace(A, requested=(FIRST,)), replace(B, requested=(FIRST,))),
        refused("b"),
        (replace(A, requested=(FIRST,)), B),
        SETTINGS,
    ),
    "another one becomes the older of two that ask for an address": Case(
        (replace(A, requested=(FIRST,), created="2027-01-01T00:00:00Z"), replace(B, requested=(FIRST,))),
        refused("a"),
        tuple(replace(one, requested=(FIRST,)) for one in (A, B)),
        SETTINGS,
    ),
    "its status lists an address that the other has": Case(
        (A, replace(B, ingress=(IngressEntry(SECOND),))), has("a", FIRST), (A, B), SETTINGS
    ),
    "it wants two families": Case(
        (replace(A, families=tuple(Family), family_policy=FamilyPolicy.REQUIRE_DUAL), B),
        lambda plan: len(plan.placements[0].addresses) == 2,
        settings=parse_settings(
            {
                "sources": [{"manifests": "m", "name": "demo"}],
                "pools": [{"name": "p", "addresses": ["127.77.0.0/29", "fd00:77::/120"]}],
            }
        ),
    ),
    "its own proxy has files for more ports, and the other's for fewer": Case(
        (replace(A, ports=(port(8080), port(8443))), B), learns("b", Discovery.STATIC), host=free_for(1, 1)
    ),
    "its own proxy has files for fewer ports, and the other's for all": Case(
        (A, B),
        learns("b", Discovery.EDS),
        (replace(A, ports=(port(8080), port(8443))), B),
        host=free_for(1, 1),
    ),
    "ports are mapped, and another one has this one": Case(
        (A, replace(B, ports=A.ports)),
        lambda plan: len({one.mapped[0].number for one in plan.placements}) == 2 and mapped_from(plan) == {8080},
        settings=replace(Settings((), ()), port_mapping=True),
    ),
    "the stack has names": Case(
        (service("a", 9090), B),
        lambda plan: ports_of("a", 9090)(plan) and len(plan.placements[0].names) == 1,
        settings=DNS,
    ),
    "pods of what a Gateway leads to": Case(
        (A,),
        lambda plan: backends(plan, "web") == {"10.0.0.8"},
        (A,),
        host=WITH_ROUTES,
        slices=((pods("10.0.0.7", of=API),), (pods("10.0.0.8", of=API),)),
        others={"gateway_api": GATEWAY.gateway_api},
    ),
    "pods become another Service's": Case(
        (A, B),
        lambda plan: [backends(plan, name) for name in "ab"] == [{"10.0.0.7"}, {"10.0.0.8", "10.0.0.9"}],
        settings=TO_PODS,
        slices=((*STAYING, pods("10.0.0.9")), (*STAYING, pods("10.0.0.9", of=B.key))),
    ),
    "it comes in the place of another": Case((A, service("c", 8082)), ports_of("c", 8082)),
    "another one comes": Case((A, B, service("c", 8082)), ports_of("c", 8082)),
    "it goes": Case((B,), lambda plan: len(plan.placements) == 1),
}


def addresses(plan: Plan) -> set[object]:
    return {address for placement in plan.placements for address in placement.addresses}


def mapped_from(plan: Plan) -> set[int]:
    return {each.port for placement in plan.placements for each in placement.mapped}


@pytest.mark.parametrize("name", CASES)
def test_change_that_concerns_others_is_planned_as_without_a_memory(name: str) -> None:
    """And the plan isn't as it was before the change."""
    case, memory = CASES[name], AnyMemo()
    before, after = (
        snapshot(*services, host=case.host, slices=slices, **case.others)
        for services, slices in zip((case.before, case.after), case.slices, strict=True)
    )
    assert not case.concerns(make_plan(before, case.settings, memory))
    plan = make_plan(after, case.settings, memory)
    assert case.concerns(plan)
    assert plan == make_plan(after, case.settings)


def test_its_own_proxy_is_planned_anew_and_the_others_stay_the_very_same() -> None:
    """With another port, then with other pods, and then as it was, which is compared with the plan just before."""
    memory, moved = AnyMemo(), service("a", 9090)
    first = (pods("10.0.0.7"),)
    before = made = make_plan(snapshot(A, B, slices=first), TO_PODS, memory)
    for one, slices in ((moved, first), (moved, (pods("10.0.0.8"),)), (moved, first), (A, first)):
        after = make_plan(now := snapshot(one, B, slices=slices), TO_PODS, memory)
        assert after == make_plan(now, TO_PODS)
        assert (after.proxies[0] == made.proxies[0], after.proxies[1] is before.proxies[1]) == (False, True)
        assert after.placements[1] is before.placements[1]
        made = after
    assert made == before
