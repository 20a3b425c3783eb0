"""Backends that stand by: used when those before them are unhealthy and they aren't, and not otherwise."""

from __future__ import annotations

import json
import time

import pytest
from msgspec.structs import replace

from locallb.model.identities import Protocol
from locallb.model.objects import Discovery
from locallb.model.serving import ConnectCheck, HttpCheck
from tests.envoy.conftest import Serve, Start
from tests.support.envoy import rendering, serve
from tests.support.envoy_traffic import Block, Load, Server, ask, ask_tcp
from tests.support.waiting import becomes

pytestmark = [pytest.mark.envoy, pytest.mark.slow]


def health_ports(block: Block, numbers: str, port: int = 0) -> list[Server]:
    """Start what answers health checks at the addresses of the given nodes, all on one port."""
    made = [Server("H", block[int(numbers[0])], port)]
    return [*made, *(Server("H", block[int(number)], made[0].port) for number in numbers[1:])]


@pytest.mark.parametrize("affinity", [False, True], ids=["any", "affinity"])
@pytest.mark.parametrize("protocol", list(Protocol)[:2])
@pytest.mark.parametrize("discovery", list(Discovery))
def test_traffic_follows_the_health_checks(  # noqa: PLR0913 - three cases, three fixtures
    discovery: Discovery, protocol: Protocol, *, affinity: bool, start: Start, nodes: Serve, block: Block
) -> None:
    """An endpoint moves from A to B and back: its Node's health port goes there with it, and so does all traffic."""
    backends = nodes("ABC")
    healthy = health_ports(block, "1")
    listener, upstream = serve(block[100], backends[:1], protocol, affinity=affinity, health=HttpCheck(healthy[0].port))
    standby = replace(upstream, standby=tuple(server.backend for server in backends[1:]))
    start(rendering((listener, standby), discovery=discovery))
    asking = ask(protocol)
    assert {asking(block[100], 8080, block[150 + n]) for n in range(20)} == {"A"}
    healthy += health_ports(block, "2", healthy[0].port)
    assert {asking(block[100], 8080, block[150 + n]) for n in range(20)} == {"A"}
    healthy[0].close()
    try:
        becomes(lambda: {asking(block[100], 8080, block[150 + n]) for n in range(20)} == {"B"}, "B takes over")
        healthy.append(health_ports(block, "1", healthy[0].port)[0])
        becomes(lambda: {asking(block[100], 8080, block[150 + n]) for n in range(20)} == {"A"}, "A is back")
    finally:
        for server in healthy[1:]:
            server.close()


def test_becoming_the_first_choice_costs_no_request(start: Start, nodes: Serve, block: Block) -> None:
    """What stood by is planned as a backend, and the other way round, with both healthy: nobody notices."""
    backends = nodes("AB")
    healthy = health_ports(block, "12")
    listener, upstream = serve(block[100], backends[:1], health=HttpCheck(healthy[0].port))
    one = replace(upstream, standby=(backends[1].backend,))
    two = replace(upstream, backends=(backends[1].backend,), standby=(backends[0].backend,))
    envoy = start(rendering((listener, one)))
    try:
        with Load(lambda: ask_tcp(block[100], 8080)) as load:
            for chosen, expected in ((two, "B"), (one, "A")):
                envoy.apply(rendering((listener, chosen)))
                becomes(lambda name=expected: ask_tcp(block[100], 8080) == name, f"{expected} answers")  # type: ignore[misc]
        assert load.failures("AB") == []
    finally:
        for server in healthy:
            server.close()


@pytest.mark.parametrize("discovery", list(Discovery))
def test_a_lone_backend_that_refuses_is_passed_over_at_once(
    discovery: Discovery, start: Start, nodes: Serve, block: Block
) -> None:
    """Its health port still says that all is well: the attempt goes on to what stands by, without a check."""
    a, b = nodes("AB")
    healthy = health_ports(block, "12")
    listener, upstream = serve(block[100], [a], health=HttpCheck(healthy[0].port))
    envoy = start(rendering((listener, replace(upstream, standby=(b.backend,))), discovery=discovery))
    try:
        becomes(lambda: "failed_active_hc" not in envoy.get("/clusters"), "both have passed a check")
        assert ask_tcp(block[100], 8080) == "A"
        a.close()
        with Load(lambda: ask_tcp(block[100], 8080)) as load:
            time.sleep(1.5)
        assert load.failures("B") == []
    finally:
        for server in healthy:
            server.close()


def test_where_no_check_passes_traffic_goes_where_it_is_planned(start: Start, nodes: Serve, block: Block) -> None:
    """EndpointSlices name a Node before its checks do, and the others drop connections, as under policy Local."""
    a, *others = nodes("ABCDE")
    (listener, upstream) = serve(block[100], [a], health=HttpCheck(1))
    start(rendering((listener, replace(upstream, standby=tuple(server.backend for server in others)))))
    for server in others:
        server.die()
    with Load(lambda: ask_tcp(block[100], 8080)) as load:
        time.sleep(1)
    assert load.failures("A") == []


@pytest.mark.parametrize("affinity", [False, True], ids=["any", "affinity"])
def test_dead_backends_send_nothing_to_what_stands_by(
    start: Start, nodes: Serve, block: Block, *, affinity: bool
) -> None:
    """As long as one is healthy: with half of them dead, the others have all of it."""
    living, dying, (behind,) = nodes("ABCD"), nodes("EFGH", first=11), nodes("X", first=21)
    listener, upstream = serve(block[100], [*living, *dying], affinity=affinity, health=ConnectCheck())
    envoy = start(rendering((listener, replace(upstream, standby=(behind.backend,)))))
    for server in dying:
        server.die()
    healthy = (
        "membership_healthy: 5" if affinity else "membership_healthy: 4"
    )  # degraded ones are counted by themselves
    becomes(lambda: healthy in envoy.get("/stats?filter=membership_healthy"), "half are known to be dead")
    assert {ask_tcp(block[100], 8080, block[101 + n]) for n in range(100)} == set("ABCD")


def test_standbys_of_an_earlier_version_are_taken_over_without_failures(
    start: Start, nodes: Serve, block: Block
) -> None:
    """It gave standbys a priority of their own."""
    a, b = nodes("AB")
    listener, upstream = serve(block[100], [a], health=ConnectCheck())
    now = rendering((listener, replace(upstream, standby=(b.backend,))))
    envoy = start(now)
    name = "eds-tcp-8080.json"
    document = json.loads(now.files[name])
    (locality,) = document["resources"][0]["endpoints"]
    first, behind = ({"endpoint": endpoint["endpoint"]} for endpoint in locality["lb_endpoints"])
    document["resources"][0] |= {
        "endpoints": [{"lb_endpoints": [first]}, {"lb_endpoints": [behind], "priority": 1}],
        "policy": {},
    }
    with Load(lambda: ask_tcp(block[100], 8080)) as load:
        for text, stands_behind in ((json.dumps(document), True), (now.files[name], False)):
            envoy.put(name, text)
            becomes(lambda observed=stands_behind: ("priority::1" in envoy.get("/clusters")) is observed, "heard")  # type: ignore[misc]
            time.sleep(0.3)
    assert load.failures("A") == []
