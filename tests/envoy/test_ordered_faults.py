"""Ordered faults: clients meet them in the ordered share and until their end, and no open connection is touched."""

from __future__ import annotations

import math
import selectors
import socket
import time
from collections import Counter
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from locallb.envoy import ARGUMENTS, Rendered
from locallb.model.faults import WHOLE, Fault, RequestDelay, RequestFailure, parse_fault
from tests.envoy.conftest import Serve, Start
from tests.support import envoy as support
from tests.support.envoy import rendering, serve
from tests.support.envoy_traffic import Block, Server, ask_tcp
from tests.support.waiting import becomes

LATER = "2999-01-01T00:00:00Z"
DEVIATIONS = 6.5
"""How many standard deviations a share may be off: a false alarm in ten thousand million runs."""
CLIENTS = 3000
ENDED = {"ConnectionResetError", "BrokenPipeError", "Closed"}
"""What a client sees whose connection is ended, depending on what it was doing just then."""


def served(block: Block, nodes: list[Server], fault: Fault | None, *, sources: tuple[str, ...] = ()) -> Rendered:
    listener, upstream = serve(block[9], nodes, sources=sources)
    return rendering((replace(listener, fault=fault), upstream))


def within(count: int, share: int, clients: int) -> bool:
    """Return whether so many of `clients` are a share of them, in hundredths of a percent, by chance."""
    chance = share / WHOLE
    deviation = math.sqrt(clients * chance * (1 - chance))
    return abs(count - clients * chance) <= DEVIATIONS * deviation


@pytest.mark.envoy
@pytest.mark.parametrize("fault", [Fault(LATER, refuse=1000), Fault(LATER, reset=100), Fault(LATER, 1000, 0, 2500)])
def test_shares_of_connections_fail_as_ordered(start: Start, nodes: Serve, block: Block, fault: Fault) -> None:
    """All others are served. A client sees a reset or an end, whichever comes before what it sends."""
    start(served(block, nodes("A"), fault))
    reported = Counter(ask_tcp(block[9], 8080) for _ in range(CLIENTS))
    assert reported.keys() <= {"A", *ENDED}
    assert within(CLIENTS - reported["A"], fault.refuse + fault.reset, CLIENTS), reported


@pytest.mark.envoy
def test_connections_are_refused_before_the_client_sends(start: Start, nodes: Serve, block: Block) -> None:
    """Refusing is for protocols in which servers speak first, too."""
    start(served(block, nodes("A"), Fault(LATER, refuse=WHOLE)))
    with socket.create_connection((block[9], 8080), 10) as client, suppress(ConnectionResetError):
        assert client.recv(1) == b""


@pytest.mark.envoy
def test_a_share_of_connections_hangs(start: Start, nodes: Serve, block: Block) -> None:
    """The others are answered; those that hang are neither answered nor closed."""
    clients, fault = 500, Fault(LATER, hang=2000)
    start(served(block, nodes("A"), fault))
    with selectors.DefaultSelector() as selector:
        for _ in range(clients):
            client = socket.create_connection((block[9], 8080), 10)
            client.sendall(b"?")
            selector.register(client, selectors.EVENT_READ)
        waiting = dict(selector.get_map())
        while ready := selector.select(1):
            for key, _ in ready:
                assert isinstance(key.fileobj, socket.socket)
                assert key.fileobj.recv(1) == b"A"
                selector.unregister(key.fileobj)
                key.fileobj.close()
        assert within(len(selector.get_map()), fault.hang, clients)
        for key in waiting.values():
            assert isinstance(key.fileobj, socket.socket)
            key.fileobj.close()


@pytest.mark.envoy
def test_a_fault_ends_by_itself(start: Start, nodes: Serve, block: Block) -> None:
    """Although nobody tells Envoy anything any more."""
    end = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=3)
    start(served(block, nodes("A"), Fault(f"{end:%Y-%m-%dT%H:%M:%SZ}", refuse=WHOLE)))
    if (answer := ask_tcp(block[9], 8080)) == "A":
        assert datetime.now(UTC) >= end
    else:
        assert answer in ENDED
    becomes(lambda: datetime.now(UTC) >= end and ask_tcp(block[9], 8080) == "A", "the fault has ended")
    assert Counter(ask_tcp(block[9], 8080) for _ in range(50)) == {"A": 50}


@pytest.mark.envoy
def test_open_connections_stay_when_a_fault_comes_and_goes(
    start: Start, nodes: Serve, block: Block, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also beyond the time after which Envoy closes what a change concerns."""
    drain = tuple("1" if word == "600" else word for word in ARGUMENTS)
    monkeypatch.setattr(support, "arguments", lambda *, udp_only: () if udp_only else drain)
    server = nodes("A")
    envoy = start(served(block, server, None))
    with socket.create_connection((block[9], 8080), 10) as client:
        for fault in (Fault(LATER, refuse=WHOLE), Fault(LATER, hang=WHOLE), None):
            client.sendall(b"?")
            assert client.recv(1) == b"A"
            envoy.apply(changed := served(block, server, fault))
            envoy.wait(changed)
            time.sleep(1.5)  # longer than Envoy drains
        client.sendall(b"?")
        assert client.recv(1) == b"A"
    assert ask_tcp(block[9], 8080) == "A"


@pytest.mark.envoy
def test_source_ranges_apply_to_fault_chains(start: Start, nodes: Serve, block: Block) -> None:
    """The chain with the fault has the source ranges of the other."""
    start(served(block, nodes("A"), Fault(LATER, reset=1), sources=(f"{block[50]}/32",)))
    assert ask_tcp(block[9], 8080, block[50]) in {"A", *ENDED}
    assert ask_tcp(block[9], 8080, block[51]) in ENDED
    assert sum(ask_tcp(block[9], 8080, block[50]) == "A" for _ in range(20)) >= 10


FAULTS = [
    ("refuse=10%,until=2026-11-22T18:00:00Z", Fault("2026-11-22T18:00:00Z", refuse=1000)),
    (
        "status=503:10%, delay=2s, until=2026-11-22T18:00:00Z",
        Fault("2026-11-22T18:00:00Z", delay=RequestDelay(2000), status=RequestFailure(503, 1000)),
    ),
    (" hang = 0.05% , until = 2026-11-22T18:00:00Z, reset=99.5%", Fault("2026-11-22T18:00:00Z", 0, 5, 9950)),
]
NONE = [
    ("refuse=10%", "until is a time such as"),
    ("refuse=10%,until=tomorrow", "until is a time such as"),
    ("refuse=10%,until=2026-13-22T18:00:00Z", "until is a time such as"),
    ('refuse=10%,until=2026-11-22T18:00:00Z") || true', "until is a time such as"),
    ("until=2026-11-22T18:00:00Z", "more than 0%"),
    ("refuse=60%,hang=50%,until=2026-11-22T18:00:00Z", "at most 100%"),
    ("refuse=0%,until=2026-11-22T18:00:00Z", "more than 0%"),
    ("refuse=10,until=2026-11-22T18:00:00Z", "'10' is not a percentage"),
    ("refuse=-1%,until=2026-11-22T18:00:00Z", "'-1%' is not a percentage"),
    ("refuse=1%,refuse=2%,until=2026-11-22T18:00:00Z", "said twice"),
    ("drop=1%,until=2026-11-22T18:00:00Z", "'drop' is none of"),
    ("", "is none of"),
    ("status=99,until=2026-11-22T18:00:00Z", "'99' is no status"),
    ("status=600:1%,until=2026-11-22T18:00:00Z", "'600:1%' is no status"),
    ("status=503:,until=2026-11-22T18:00:00Z", "'' is not a percentage"),
    ("status=503:0%,until=2026-11-22T18:00:00Z", "a share is more than 0%"),
    ("delay=0ms,until=2026-11-22T18:00:00Z", "'0ms' is no delay"),
    ("delay=200,until=2026-11-22T18:00:00Z", "'200' is no delay"),
    ("delay=3601s,until=2026-11-22T18:00:00Z", "at most 1 hour"),
    ("delay=1s:101%,until=2026-11-22T18:00:00Z", "at most 100%"),
]


@pytest.mark.parametrize(("text", "fault"), FAULTS)
def test_an_order_is_read(text: str, fault: Fault) -> None:
    """Spaces and order are no matter."""
    assert parse_fault(text) == fault


@pytest.mark.parametrize(("text", "why"), NONE)
def test_an_order_that_makes_no_sense_is_refused(text: str, why: str) -> None:
    """With half a sentence."""
    with pytest.raises(ValueError, match=why):
        parse_fault(text)


@given(st.text())
def test_any_text_is_an_order_or_none(text: str) -> None:
    """And nothing else is raised."""
    with suppress(ValueError):
        assert parse_fault(text).until.endswith("Z")
