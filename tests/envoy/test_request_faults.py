"""Faults of requests: clients meet them in the ordered share and until their end, on connections that are open."""

from __future__ import annotations

import http.client
import json
import math
import selectors
import socket
import time
from collections import Counter
from contextlib import ExitStack, closing
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address

import grpc
import pytest

from locallb.envoy import Rendered, render
from locallb.envoy.http_policies import may_fail
from locallb.model.faults import WHOLE, Fault, RequestDelay, RequestFailure
from locallb.model.http_routes import DirectResponse, Forward, HttpRoute, Match, PathKind, PathMatch, Target
from locallb.model.http_serving import ANY, Chain, HttpBackends, HttpListener, HttpRoutes, Speaks, VirtualHost
from locallb.model.identities import Protocol, ProxyId, ProxyName, UpstreamName
from locallb.model.objects import Discovery
from locallb.model.serving import Proxy, Upstream
from tests.envoy.conftest import Start
from tests.support.envoy_traffic import Block
from tests.support.goldens import Golden
from tests.support.http_traffic import grpc_server
from tests.support.waiting import becomes

LATER = "2999-01-01T00:00:00Z"
DEVIATIONS = 6.5
"""How many standard deviations a share may be off: a false alarm in ten thousand million runs."""
REQUESTS = 10_000
MINE = HttpRoute(Match(PathMatch(PathKind.EXACT, "/mine")), DirectResponse(200, "mine"))


def served(
    address: str,
    fault: Fault | None,
    *routes: HttpRoute,
    upstreams: tuple[Upstream, ...] = (),
    discovery: Discovery = Discovery.EDS,
) -> Rendered:
    """Render a proxy of whose requests some fail."""
    chain = Chain(HttpRoutes((VirtualHost((ANY,), routes or (MINE,)),)))
    listener = HttpListener(ip_address(address), 8080, (chain,), may_fail=True, fault=fault)
    name, identity = ProxyName("test/gateways/default/web"), ProxyId("0123456789ab")
    return render(Proxy(name, identity, discovery, (), upstreams, http=(listener,), may_serve_http=True))


def requested(client: http.client.HTTPConnection, path: str = "/mine") -> int:
    """Ask on the one connection; return the status."""
    client.request("GET", path)
    answer = client.getresponse()
    answer.read()
    assert not answer.will_close
    return answer.status


def within(count: int, share: int, requests: int) -> bool:
    """Return whether so many of `requests` are a share of them, in hundredths of a percent, by chance."""
    chance = share / WHOLE
    return abs(count - requests * chance) <= DEVIATIONS * math.sqrt(requests * chance * (1 - chance))


@pytest.mark.envoy
@pytest.mark.parametrize("discovery", list(Discovery))
def test_a_share_of_requests_is_answered_as_ordered(start: Start, block: Block, discovery: Discovery) -> None:
    """10 % of 10,000 requests of one connection; what no route takes is not found as ever."""
    fault = Fault(LATER, status=RequestFailure(503, 1000))
    start(served(block[9], fault, discovery=discovery))
    with closing(http.client.HTTPConnection(block[9], 8080, timeout=20)) as client:
        reported = Counter(requested(client) for _ in range(REQUESTS))
        assert reported.keys() == {200, 503}
        assert within(reported[503], 1000, REQUESTS), reported
        assert {requested(client, "/nobodys") for _ in range(100)} == {404}


@pytest.mark.envoy
def test_a_share_of_requests_is_delayed_as_ordered(start: Start, block: Block) -> None:
    """Those aren't answered before their time, and the others are: so long a delay has no end in a test."""
    clients, share = 500, 2000
    start(served(block[9], Fault(LATER, delay=RequestDelay(3_600_000, share))))
    with ExitStack() as open_ones:
        waiting = open_ones.enter_context(selectors.DefaultSelector())
        for _ in range(clients):
            client = http.client.HTTPConnection(block[9], 8080, timeout=20)
            open_ones.callback(client.close)
            client.request("GET", "/mine")
            waiting.register(client.sock, selectors.EVENT_READ)
        while ready := waiting.select(1):
            for key, _ in ready:
                assert isinstance(key.fileobj, socket.socket)
                assert key.fileobj.recv(12) == b"HTTP/1.1 200"
                waiting.unregister(key.fileobj)
        assert within(len(waiting.get_map()), share, clients)


@pytest.mark.envoy
def test_a_delay_is_as_long_as_ordered_and_the_answer_is_the_backends(start: Start, block: Block) -> None:
    """Or longer, where the machine is busy; with a status both happen. Clocks may differ by some milliseconds."""
    start(served(block[9], Fault(LATER, delay=RequestDelay(300), status=RequestFailure(429, 5000))))
    with closing(http.client.HTTPConnection(block[9], 8080, timeout=20)) as client:
        reported = set[int]()
        while reported < {200, 429}:
            began = time.monotonic()
            reported.add(requested(client))
            assert time.monotonic() - began >= 0.25


@pytest.mark.envoy
def test_a_fault_of_requests_ends_by_itself_on_an_open_connection(start: Start, block: Block) -> None:
    """Although nobody tells Envoy anything any more."""
    end = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=3)
    start(served(block[9], Fault(f"{end:%Y-%m-%dT%H:%M:%SZ}", status=RequestFailure(503))))
    with closing(http.client.HTTPConnection(block[9], 8080, timeout=20)) as client:
        if requested(client) == 200:
            assert datetime.now(UTC) >= end
        becomes(lambda: requested(client) == 200, "the fault has ended")
        assert datetime.now(UTC) >= end
        assert {requested(client) for _ in range(50)} == {200}


@pytest.mark.envoy
def test_open_connections_meet_a_fault_that_comes_and_goes(start: Start, block: Block) -> None:
    """On the very same connection, as listeners aren't touched."""
    plain = served(block[9], None)
    envoy = start(plain)
    with closing(http.client.HTTPConnection(block[9], 8080, timeout=20)) as client:
        assert requested(client) == 200
        mine = client.sock
        for code in (503, 418):
            changed = served(block[9], Fault(LATER, status=RequestFailure(code)))
            assert changed.files["lds.json"] == plain.files["lds.json"]
            envoy.apply(changed)
            becomes(lambda code=code: requested(client) == code, "the fault is there")  # type: ignore[misc]
            envoy.apply(plain)
            becomes(lambda: requested(client) == 200, "the fault is gone")
        assert client.sock is mine


@pytest.mark.envoy
def test_a_route_has_a_fault_of_its_own_unless_all_have_one(start: Start, block: Block) -> None:
    """Others aren't concerned."""
    late = Fault(LATER, status=RequestFailure(418))
    failing = HttpRoute(Match(PathMatch(PathKind.EXACT, "/other")), DirectResponse(200, "other"), fault=late)
    envoy = start(served(block[9], None, MINE, failing))
    with closing(http.client.HTTPConnection(block[9], 8080, timeout=20)) as client:
        assert [requested(client, path) for path in ("/mine", "/other")] == [200, 418]
        envoy.apply(served(block[9], Fault(LATER, status=RequestFailure(503)), MINE, failing))
        becomes(lambda: requested(client) == 503, "the fault of all is there")
        assert requested(client, "/other") == 503


@pytest.mark.envoy
def test_calls_of_grpc_fail_as_calls_do(start: Start, block: Block) -> None:
    """With the status that gRPC has in place of the one of HTTP."""
    with grpc_server(block[1]) as backend:
        calls = Upstream(UpstreamName("calls"), Protocol.TCP, (backend,), http=HttpBackends(Speaks.HTTP2))
        route = HttpRoute(Match(), Forward((Target(UpstreamName("calls")),)))
        start(served(block[9], Fault(LATER, status=RequestFailure(503)), route, upstreams=(calls,)))
        with grpc.insecure_channel(f"{block[9]}:8080") as channel, pytest.raises(grpc.RpcError) as failed:
            channel.unary_unary("/test.Echo/Say", None, None)(b"?", timeout=20)
        assert failed.value.code() is grpc.StatusCode.UNAVAILABLE


def test_a_fault_of_requests_renders_to_its_golden_files(golden: Golden) -> None:
    """Where routes are files they alone say it."""
    fault = Fault("2026-11-22T18:00:00Z", delay=RequestDelay(200, 5000), status=RequestFailure(503, 1000))
    golden.check("envoy_http/fault", served("127.77.0.5", fault).files)


def test_fault_support_is_read_from_the_listener_text() -> None:
    """As the state has them, also those of earlier versions, which take no faults of requests."""
    with_filter = served("127.77.0.5", None).files["lds.json"]
    assert may_fail(with_filter) is True
    document = json.loads(with_filter)
    manager = document["resources"][0]["filter_chains"][0]["filters"][0]["typed_config"]
    manager["http_filters"] = [each for each in manager["http_filters"] if not each.get("disabled")]
    assert may_fail(json.dumps(document, separators=(",", ":"))) is False
    assert may_fail("") is None


def test_a_listener_that_takes_no_faults_has_none() -> None:
    """Whoever makes one is told."""
    with pytest.raises(ValueError, match="says that they may"):
        HttpListener(
            ip_address("127.77.0.5"), 80, (Chain(HttpRoutes(())),), fault=Fault(LATER, status=RequestFailure(503))
        )
