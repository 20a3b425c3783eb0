"""Sockets of others that are in nobody's way: who alone has changed is placed alone beside them.

That the plan is the one made from nothing is a law of plans (`test_plan_laws`), whose hosts change as well.
"""

from __future__ import annotations

from ipaddress import ip_address
from typing import Any

import pytest
from msgspec.structs import replace

from locallb.config.parsing.pools import DEFAULT_POOL
from locallb.config.settings import ProxySettings, Settings, Sharing
from locallb.model.identities import ClusterName, Family, Home, ObjectKey, Protocol
from locallb.model.objects import EndpointSlice, IngressEntry, Service, ServicePort
from locallb.model.snapshot import HostFacts, Snapshot, Socket
from locallb.planning.backends.index import SlicesByService, by_service
from locallb.planning.memory import PlanMemory
from locallb.planning.plan import make_plan

C = ClusterName("c")
SETTINGS = Settings((), (DEFAULT_POOL,), proxies=ProxySettings(Sharing.SHARED))
WEB, API = (Service(ObjectKey(C, "n", name), (ServicePort(8080, node_port=30080),)) for name in ("web", "api"))
MOVED = replace(WEB, ports=(ServicePort(8081, node_port=30080),))
BEFORE = HostFacts(sockets=(Socket(ip_address("10.0.0.7"), 53, Protocol.UDP, "dns (7)"),))


def listening(address: str, port: int, protocol: Protocol = Protocol.TCP) -> HostFacts:
    """Return the host with one more process that listens."""
    return replace(BEFORE, sockets=(*BEFORE.sockets, Socket(ip_address(address), port, protocol, "x (1)")))


def snapshot(*services: Service, host: HostFacts = BEFORE) -> Snapshot:
    """Return these Services on a host."""
    return Snapshot(Home("p", "s", "/p"), services=services, host=host)


@pytest.mark.parametrize(
    ("host", "alone"),
    [
        (listening("10.0.0.8", 8080), True),
        (listening("0.0.0.0", 5353, Protocol.UDP), True),
        (listening("0.0.0.0", 8080, Protocol.UDP), True),
        (listening("::", 9999), True),
        (replace(BEFORE, sockets=()), True),
        (listening("0.0.0.0", 8080), False),
        (listening("::", 8080), False),
        (listening("127.77.0.1", 22), False),
        (listening("127.77.0.5", 22), False),
        (listening("10.0.0.9", 22), False),
        (replace(BEFORE, unprivileged_port_start=80), False),
        (replace(BEFORE, may_route=False), False),
    ],
)
def test_a_socket_that_is_in_nobodys_way_lets_others_be_planned_as_they_were(host: HostFacts, *, alone: bool) -> None:
    """Neither at the port of a Service on every address, nor at an address that a pool or a Service may have."""
    lists = replace(API, ingress=(IngressEntry(ip_address("10.0.0.9")),))
    memory = PlanMemory()
    make_plan(snapshot(lists, WEB), SETTINGS, memory)
    assert memory.last
    assert (memory.last.others(snapshot(lists, MOVED, host=host), SETTINGS) == [MOVED]) == alone
    after = make_plan(snapshot(lists, MOVED, host=host), SETTINGS, memory)
    assert after == make_plan(snapshot(lists, MOVED, host=host), SETTINGS)


def test_a_socket_that_may_have_blocked_a_rejected_service_is_looked_at() -> None:
    """Which is anybody's, as long as there is a rejection; and so is one beside pins."""
    wants = replace(API, requested=(ip_address("192.0.2.1"),))
    for services, settings in (
        ((wants, WEB), SETTINGS),
        ((API, WEB), replace(SETTINGS, pins={"n/x": (ip_address("192.0.2.1"),)})),
    ):
        memory = PlanMemory()
        make_plan(snapshot(*services), settings, memory)
        assert memory.last
        assert memory.last.others(snapshot(*services, host=listening("10.0.0.8", 22)), settings) is None
        assert memory.last.others(snapshot(*services), settings) == []


@pytest.mark.parametrize("left", [0, 1, 2, 3, 6, 10**6])
def test_inotify_instances_count_where_they_decide_about_proxies(left: int) -> None:
    """The plan is the one made from nothing, also where there is no room any more."""
    memory = PlanMemory()
    make_plan(snapshot(API, WEB), SETTINGS, memory)
    less = snapshot(API, MOVED, host=replace(BEFORE, watches=left))
    assert make_plan(less, SETTINGS, memory) == make_plan(less, SETTINGS)


def slices(*of: Any) -> tuple[EndpointSlice, ...]:  # noqa: ANN401 - Services
    """Return an EndpointSlice of each."""
    return tuple(EndpointSlice(service.key, Family.IPV4) for service in of)


def test_endpoint_slices_are_sorted_as_by_a_newcomer() -> None:
    """Some in the places of others, of other Services, the very same one twice, more and fewer of them."""
    known, (a, b, c, d) = SlicesByService(), slices(WEB, WEB, API, API)
    for now in ((a, b, c), (d, b, c), (a, b, d), (a, a, d), (b, a, d), (b, b, d), (c, b, d), (c, b), (), (a,), (b,)):
        assert known.of(now) == by_service(now)
