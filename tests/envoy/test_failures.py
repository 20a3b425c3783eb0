"""What clients see of backends that refuse, fall silent or come up slowly: a delay, not a failure."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from itertools import cycle

import pytest

from locallb.model.identities import Protocol
from locallb.model.objects import Discovery
from locallb.model.serving import ConnectCheck, HealthCheck, HttpCheck
from tests.envoy.conftest import Serve, Start
from tests.support.envoy import rendering, serve
from tests.support.envoy_traffic import Block, Load, Server, ask_tcp, ask_udp
from tests.support.waiting import becomes

pytestmark = [pytest.mark.envoy, pytest.mark.slow]
UDP = Protocol.UDP
AFFINITY = pytest.mark.parametrize("affinity", [False, True], ids=["any", "affinity"])


def _check(kind: str, backends: list[Server]) -> HealthCheck:
    return {"none": None, "connect": ConnectCheck(), "http": HttpCheck(backends[0].port)}[kind]


def _from_many(block: Block) -> Callable[[], str]:
    """Ask from another source address each time, so that with affinity every backend gets clients."""
    sources = cycle(block[n] for n in range(110, 240))
    return lambda: ask_tcp(block[100], 8080, next(sources))


@AFFINITY
def test_a_refusing_backend_costs_no_request(*, affinity: bool, start: Start, nodes: Serve, block: Block) -> None:
    """A closed port is passed over at once, without any health check."""
    three = nodes("ABC")
    start(rendering(serve(block[100], three, affinity=affinity)))
    three[2].close()
    with Load(_from_many(block)) as load:
        time.sleep(0.5)
    assert load.failures("AB") == []
    assert max(outcome.seconds for outcome in load.outcomes) < 0.5 + load.late


@pytest.mark.parametrize(("check", "affinity"), [("none", False), ("connect", False), ("http", False), ("none", True)])
def test_a_dead_node_costs_a_second_at_most(
    check: str, *, affinity: bool, start: Start, nodes: Serve, block: Block
) -> None:
    """When a node falls silent, no later request fails and none waits for a second, checked or not.

    What the node had accepted and not answered yet goes down with it: nobody can know whether it was done.
    """
    three = nodes("ABC")
    start(rendering(serve(block[100], three, affinity=affinity, health=_check(check, three))))
    with Load(_from_many(block)) as load:
        time.sleep(0.3)
        three[2].die()
        died = time.perf_counter()
        time.sleep(1.0)
    later = [outcome for outcome in load.outcomes if outcome.began > died]
    assert [outcome for outcome in load.failures("ABC") if outcome in later] == []
    assert max(outcome.seconds for outcome in later) < 1 + load.late
    assert {outcome.answer for outcome in later} == {"A", "B"}


@pytest.mark.parametrize("discovery", Discovery)
def test_a_node_that_was_dead_at_the_start_costs_a_second_at_most(
    discovery: Discovery, start: Start, nodes: Serve, block: Block
) -> None:
    """An Envoy that starts with a dead node among its backends serves nearly as soon as one without."""
    three = nodes("ABC")
    began = time.perf_counter()
    start(rendering(serve(block[101], three, health=ConnectCheck()), discovery=discovery))
    assert ask_tcp(block[101], 8080) in {"A", "B", "C"}
    alive = time.perf_counter() - began
    three[2].die()
    began = time.perf_counter()
    start(rendering(serve(block[100], three, health=ConnectCheck()), discovery=discovery))
    assert ask_tcp(block[100], 8080) in {"A", "B"}
    assert time.perf_counter() - began < 2 * alive + 1


def test_a_dead_node_is_out_for_udp_within_a_second(start: Start, nodes: Serve, block: Block) -> None:
    """Datagrams can't be retried: the check takes the node out, also when nothing flowed before."""
    three = nodes("ABC")
    start(rendering(serve(block[100], three, UDP, health=HttpCheck(three[0].port))))
    three[2].die()
    time.sleep(1)
    assert {ask_udp(block[100], 8080) for _ in range(12)} == {"A", "B"}


def test_a_udp_client_moves_off_a_dead_node_within_a_second(start: Start, nodes: Serve, block: Block) -> None:
    """A client that keeps its socket, and so its session, is answered by another backend."""
    three = nodes("ABC")
    start(rendering(serve(block[100], three, UDP, health=HttpCheck(three[0].port))))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.connect((block[100], 8080))
        client.settimeout(0.05)
        home = _exchange(client)
        next(server for server in three if server.name == home).die()
        died = time.perf_counter()
        becomes(lambda: _exchange(client) not in {"", home}, "another backend answers")
        assert time.perf_counter() - died < 1


def _exchange(client: socket.socket) -> str:
    try:
        client.send(b"?")
        return client.recv(1).decode()
    except TimeoutError:
        return ""


def test_a_hanging_node_is_out_within_a_second_and_a_half(start: Start, nodes: Serve, block: Block) -> None:
    """A node whose health port accepts and no longer answers gets no new connections."""
    good, hanging = nodes("A"), nodes("B", first=2, delay=0)
    hanging[0].close()
    with Server("B", block[2], good[0].port) as slow:
        start(rendering(serve(block[100], [*good, slow], health=HttpCheck(good[0].port))))
        slow.delay = 1.0
        time.sleep(1.5)
        assert {ask_tcp(block[100], 8080) for _ in range(8)} == {"A"}


@pytest.mark.parametrize("check", ["none", "connect", "http"])
def test_new_backends_serve_before_their_first_check_ended(
    check: str, start: Start, nodes: Serve, block: Block
) -> None:
    """When all backends are exchanged at once for ones whose check takes 0.2 s, no request fails."""
    old, new = nodes("AB"), nodes("CD", first=11, delay=0.2)
    # The check is the new backends'. By HTTP the old ones fail it, which serves them all the same: none is healthy.
    health = _check(check, new)
    envoy = start(rendering(serve(block[100], old, health=health)))
    with Load(lambda: ask_tcp(block[100], 8080)) as load:
        time.sleep(0.2)
        envoy.apply(rendering(serve(block[100], new, health=health)))
        changed = time.perf_counter()
        time.sleep(0.6)
    assert load.failures("ABCD") == []
    assert {outcome.answer for outcome in load.outcomes if outcome.began > changed + 0.05} == {"C", "D"}


def test_a_backend_that_returns_is_used_again(start: Start, nodes: Serve, block: Block) -> None:
    """A restarted backend gets connections again within two seconds."""
    first, second = nodes("AB")
    start(rendering(serve(block[100], [first, second], health=ConnectCheck())))
    port = second.port
    second.close()
    assert {ask_tcp(block[100], 8080) for _ in range(6)} == {"A"}
    with Server("B", block[2], port):
        time.sleep(2)
        assert {ask_tcp(block[100], 8080) for _ in range(4)} == {"A", "B"}


def test_the_only_backend_is_never_given_up(start: Start, nodes: Serve, block: Block) -> None:
    """After a failure of the only backend, the first connect after its return succeeds."""
    [only] = nodes("A")
    start(rendering(serve(block[100], [only])))
    port = only.port
    only.close()
    assert ask_tcp(block[100], 8080) in {"Closed", "ConnectionResetError"}
    with Server("A", block[1], port):
        assert ask_tcp(block[100], 8080) == "A"
