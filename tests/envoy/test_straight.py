"""Straight to pods, by a real Envoy: going over from NodePorts and back, and what stands by for pods."""

from __future__ import annotations

import socket
import time
from contextlib import ExitStack
from functools import partial
from ipaddress import ip_address

import pytest
from msgspec.structs import replace

from locallb.envoy import Rendered
from locallb.model.identities import Protocol
from locallb.model.objects import Discovery
from locallb.model.serving import Backend, ConnectCheck, HttpCheck, Listener, Upstream
from tests.envoy.conftest import Serve, Start
from tests.support.envoy import rendering, serve
from tests.support.envoy_traffic import Block, Load, Outcome, Server, ask_tcp, ask_udp
from tests.support.waiting import becomes

pytestmark = [pytest.mark.envoy, pytest.mark.slow]
Port = tuple[Listener, Upstream]


def _answer_alone(address: str, remaining: set[str]) -> bool:
    return {ask_udp(address, 8080) for _ in range(9)} == remaining


def checked_elsewhere(server: Server, kube_proxy: Server) -> Backend:
    """Make the backend that is a server, and as healthy as kube-proxy of its Node."""
    address = server.backend.address
    return Backend.at(address, server.port, kube_proxy.backend.address, kube_proxy.port)


def end(pod: Server) -> float:
    """End a pod, and with it the requests that it has; return the moment from which it refuses others."""
    pod.close()
    return time.perf_counter()


def pod_paths(block: Block, pods: list[Server], nodes: list[Server], kube_proxy: Server) -> tuple[Port, Port]:
    """Describe a port that goes straight to pods, and the same port when it goes to NodePorts."""
    listener, upstream = serve(block[100], pods, health=ConnectCheck())
    by_nodes = tuple(checked_elsewhere(server, kube_proxy) for server in nodes)
    return (listener, replace(upstream, standby=by_nodes)), (listener, replace(upstream, backends=by_nodes))


@pytest.mark.parametrize("discovery", list(Discovery))
@pytest.mark.parametrize("checked", [True, False], ids=["routes-of-some-pods", "first-route"])
def test_going_over_to_pods_and_back_fails_no_request(
    discovery: Discovery, *, checked: bool, start: Start, nodes: Serve, block: Block
) -> None:
    """Under a constant rate; with EDS only endpoints change, but where no pod at all was reached before."""
    pods, others = nodes("ABC"), nodes("XY", first=51)
    straight, by_nodes = pod_paths(block, pods, others, others[0])
    if not checked:
        by_nodes = by_nodes[0], replace(by_nodes[1], health=HttpCheck(others[0].port))
    one, two = rendering(by_nodes, discovery=discovery), rendering(straight, discovery=discovery)
    if discovery is Discovery.EDS:
        same = {name for name in one.files if one.files[name] == two.files[name]}
        assert same == {"bootstrap.json", "lds.json"} | ({"cds.json"} if checked else set())
    envoy = start(one)
    with Load(lambda: ask_tcp(block[100], 8080)) as load:
        for chosen, names in ((two, "ABC"), (one, "XY"), (two, "ABC")):
            envoy.apply(chosen)
            becomes(lambda names=names: ask_tcp(block[100], 8080) in names, f"{names} answer")  # type: ignore[misc]
            time.sleep(0.3)
    assert load.failures("ABCXY") == []
    assert {outcome.answer for outcome in load.outcomes} == set("ABCXY")


@pytest.mark.parametrize("silent", [True, False], ids=["silent", "refusing"])
@pytest.mark.parametrize("count", [1, 8])
def test_pods_that_refuse_this_host_cost_at_most_a_retry(
    count: int, *, silent: bool, start: Start, nodes: Serve, block: Block
) -> None:
    """A NetworkPolicy drops, an ended pod refuses: NodePorts take all of it, one client after the other."""
    pods, others = nodes("ABCDEFGH"[:count]), nodes("XY", first=51)
    straight, by_nodes = pod_paths(block, pods, others, others[0])
    for pod in pods:
        pod.die() if silent else pod.close()
    envoy = start(rendering(by_nodes))
    with Load(lambda: ask_tcp(block[100], 8080), rate=20) as load:
        envoy.apply(rendering(straight))
        time.sleep(3)
    assert load.failures("XY") == []


def test_a_pod_that_ends_at_once_is_passed_over(start: Start, nodes: Serve, block: Block) -> None:
    """The only pod known refuses until Envoy hears of its successor: the NodePort has what comes meanwhile."""
    (old, new), others = nodes("AB"), nodes("X", first=51)
    (listener, before), _ = pod_paths(block, [old], others, others[0])
    envoy = start(rendering((listener, before)))
    becomes(lambda: ask_tcp(block[100], 8080) == "A", "A answers")
    with Load(lambda: ask_tcp(block[100], 8080)) as load:
        time.sleep(0.2)
        closed = end(old)
        time.sleep(0.03)
        envoy.apply(rendering((listener, replace(before, backends=(new.backend,)))))
        becomes(lambda: ask_tcp(block[100], 8080) == "B", "B answers")
        time.sleep(0.2)
    assert [outcome for outcome in load.failures("ABX") if outcome.began > closed] == []


def test_without_node_ports_a_refused_connect_waits_for_the_next_pod(start: Start, nodes: Serve, block: Block) -> None:
    """The only one known a moment ago refuses, and the retry goes to the one that was heard of since."""
    old, new = nodes("AB")
    listener, before = serve(block[100], [old], health=ConnectCheck())
    envoy = start(rendering((listener, before)))
    with Load(lambda: ask_tcp(block[100], 8080)) as load:
        time.sleep(0.2)
        closed = end(old)
        envoy.put("eds-tcp-8080.json", rendering(serve(block[100], [new])).files["eds-tcp-8080.json"])
        time.sleep(0.3)
    assert [outcome for outcome in load.failures("AB") if outcome.began > closed] == []


@pytest.mark.parametrize("patient", [True, False], ids=["patient", "not"])
def test_where_connections_are_held_the_next_pod_may_come_later(
    *, patient: bool, start: Start, nodes: Serve, block: Block
) -> None:
    """All who come after the only pod has ended get the next one; otherwise those who come first are let go."""
    old, new = nodes("AB")
    listener, before = serve(block[100], [old], health=ConnectCheck())
    listener = replace(listener, patient=patient)
    envoy = start(rendering((listener, before)))
    assert ask_tcp(block[100], 8080) == "A"
    end(old)
    with Load(lambda: ask_tcp(block[100], 8080), rate=20) as load:
        time.sleep(0.3)
        envoy.apply(rendering((listener, replace(before, backends=(new.backend,)))))
        becomes(lambda: ask_tcp(block[100], 8080) == "B", "B answers")
    assert (load.failures("B") == []) is patient


def test_a_patient_client_is_let_go_in_the_end(start: Start, block: Block) -> None:
    """Nobody comes."""
    listener, upstream = serve(block[100], [])
    nobody = Backend.at(ip_address(block[1]), 9)
    start(rendering((replace(listener, patient=True), replace(upstream, backends=(nobody,)))))
    assert ask_tcp(block[100], 8080) in {"ConnectionResetError", "Closed"}


def test_udp_goes_to_pods_whose_node_lives(start: Start, nodes: Serve, block: Block) -> None:
    """Their Nodes' kube-proxy tells; where it falls silent the others have all of it, NodePorts if there are none."""
    a, b, x = nodes("ABX")
    first, second = Server("H", block[11]), Server("H", block[12])
    requested = [checked_elsewhere(a, first), checked_elsewhere(b, second)]
    listener, upstream = serve(block[100], [], Protocol.UDP, health=HttpCheck(x.port))
    start(rendering((listener, replace(upstream, backends=tuple(requested), standby=(x.backend,)))))
    try:
        answers = {ask_udp(block[100], 8080) for _ in range(20)}
        assert answers == {"A", "B"}
        for health, remaining in ((first, {"B"}), (second, {"X"})):
            health.close()
            becomes(partial(_answer_alone, block[100], remaining), f"{remaining} alone")
    finally:
        first.close()
        second.close()


def test_pod_of_an_unknown_node_counts_as_healthy(start: Start, nodes: Serve, block: Block) -> None:
    """A pod whose Node nobody knows is served at once, although its upstream is checked."""
    (a,) = nodes("A")
    listener, upstream = serve(block[100], [], Protocol.UDP, health=HttpCheck(1))
    envoy = start(
        rendering((listener, replace(upstream, backends=(Backend.at(a.backend.address, a.port, None, None),))))
    )
    assert ask_udp(block[100], 8080) == "A"
    assert "membership_healthy: 1" in envoy.get("/stats?filter=membership_healthy")


@pytest.mark.parametrize("at_once", [False, True], ids=["drained", "at-once"])
@pytest.mark.parametrize("home", ["", "::1"], ids=["IPv4", "IPv6"])
def test_a_rolling_update_of_twenty_pods_fails_no_request(
    home: str, *, at_once: bool, start: Start, block: Block
) -> None:
    """Each is replaced after 20 requests; it ends after it was told, or 30 ms before, with what it just had."""
    with ExitStack() as stack:
        old, new = ([stack.enter_context(Server("P", home or block[n])) for n in range(first, first + 20)]
                    for first in (1, 21))  # fmt: skip
        standby = stack.enter_context(Server("N", home or block[99])).backend
        place, port = home or block[100], free_port(home or block[100])

        def reported(serving: list[Server]) -> Rendered:
            listener, upstream = serve(place, serving, port=port, health=ConnectCheck())
            return rendering((listener, replace(upstream, standby=(standby,))))

        envoy, ended = start(reported(old)), list[float]()
        with Load(lambda: ask_tcp(place, port)) as load:
            for count, pod in enumerate(old, 1):
                if at_once:
                    ended.append(end(pod))
                    time.sleep(0.03)
                envoy.apply(reported([*old[count:], *new[:count]]))
                load.await_more(20)
                pod.close()
    assert [each for each in load.failures("PN") if not any(under_way(each, moment) for moment in ended)] == []


def under_way(request: Outcome, moment: float) -> bool:
    """Return whether a request had been made, and not answered, when its pod ended."""
    return request.began < moment <= request.began + request.seconds + 0.05


def free_port(address: str) -> int:
    """Return a port that nobody has at an address."""
    with socket.create_server((address, 0), family=socket.AF_INET6 if ":" in address else socket.AF_INET) as found:
        return int(found.getsockname()[1])
