"""Logs of a real Envoy: on and off without a cut connection, as many lines as the gate lets pass, nothing kept."""

from __future__ import annotations

import socket
from contextlib import ExitStack
from ipaddress import ip_address
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from locallb.cli import traffic
from locallb.envoy import Rendered
from locallb.envoy.listeners import CLOSED, GATE, gate
from locallb.model.faults import Fault
from locallb.model.identities import ClusterName, ObjectKey
from locallb.model.serving import Backend, Listener, Upstream
from locallb.planning.planned import Plan
from locallb.traffic.figures import Line, lines
from locallb.traffic.reading import ENOUGH, LogError, Tap, TrafficReading
from tests.envoy.conftest import Serve, Start
from tests.support.envoy import rendering, serve
from tests.support.envoy_traffic import Block, Server, ask_tcp
from tests.support.log_reading import Reader, reading, was_accepted
from tests.support.waiting import becomes

READER = "access-log"
COMPLAINT = 300
"""Bytes that Envoy logs about a message that nobody takes; it has at least one line."""


def logged(
    block: Block, nodes: list[Server], log: str = READER, fault: Fault | None = None, sources: tuple[str, ...] = ()
) -> Rendered:
    """Render one port with a log, or without one."""
    return rendering(logged_port(block, nodes, log, fault, sources))


def logged_port(
    block: Block, nodes: list[Server], log: str = READER, fault: Fault | None = None, sources: tuple[str, ...] = ()
) -> tuple[Listener, Upstream]:
    """Describe one port with a log, or without one."""
    listener, upstream = serve(block[9], nodes, sources=sources)
    return replace(listener, log=log, fault=fault), upstream


def speak(address: str) -> str:
    """Ask on a connection of its own; return where it came from."""
    with socket.create_connection((address, 8080), 10) as client, client.makefile("rb") as answers:
        client.sendall(b"x\n")
        assert answers.readline()
        host, port = client.getsockname()[:2]
        return f"{host}:{port}"


def sizes(directory: Path) -> dict[str, int]:
    """Return how large everything is but what Envoy says of itself."""
    return {path.name: path.stat().st_size for path in directory.iterdir() if path.name != "log"}


def is_heard(reader: Reader, address: str) -> bool:
    """Speak, and tell whether anything was told of by now: the gate opens a moment after it was written."""
    speak(address)
    return bool(reader.lines)


@pytest.mark.envoy
@pytest.mark.parametrize("fault", [None, Fault("2000-01-01T00:00:00Z", reset=100)], ids=["plain", "fault"])
@pytest.mark.parametrize("sources", [(), ("127.0.0.0/8",)], ids=["everybody", "some"])
def test_a_log_comes_and_goes_without_a_cut_connection_and_tells_of_each_new_one(
    start: Start, nodes: Serve, block: Block, fault: Fault | None, sources: tuple[str, ...]
) -> None:
    """The connection that was open before stays on a chain that isn't touched; each later one is a line."""
    servers = nodes("A")
    envoy = start(logged(block, servers, "", fault, sources))
    with socket.create_connection((block[9], 8080), 10) as retained, retained.makefile("rb") as answers:
        retained.sendall(b"x\n")
        first = answers.readline()
        envoy.apply(logged(block, servers, fault=fault, sources=sources))
        with reading(envoy.directory) as reader:
            becomes(lambda: is_heard(reader, block[9]), "a line")
            mine = [speak(block[9]) for _ in range(100)]
            becomes(lambda: set(mine) <= set(reader.clients()), "all of them")
            reported = [line for line in reader.lines if line.client in mine]
            assert len(reported) == len(mine)
            assert {line.backend for line in reported} == {str(servers[0].backend)}
            assert {line.listener for line in reported} == {f"{block[9]}:8080/TCP"}
            assert {line.received for line in reported} == {2}
        retained.sendall(b"x\n")
        assert answers.readline() == first
        envoy.apply(logged(block, servers, "", fault, sources))
        assert ask_tcp(block[9], 8080) == "A"
        retained.sendall(b"x\n")
        assert answers.readline() == first


def begin(address: str, opened: ExitStack) -> tuple[socket.socket, str]:
    """Open a connection and say something on it; return where it came from as well."""
    client = opened.enter_context(socket.create_connection((address, 8081), 10))
    client.sendall(b"x")
    return client, ":".join(map(str, client.getsockname()))


def is_unanswered(client: socket.socket) -> bool:
    """Wait for the other side's end of a connection, and end it; tell whether nothing came on it."""
    with client:
        try:
            return client.recv(1) == b""
        except ConnectionResetError:
            return True


@pytest.mark.envoy
@pytest.mark.parametrize("read", [True, False], ids=["closed", "reset"])
def test_an_access_log_tells_requests_that_an_ended_backend_cut_from_refused_ones(
    start: Start, nodes: Serve, block: Block, *, read: bool
) -> None:
    """Either client's connection ends without an answer; only the first was accepted by what was asked."""
    listener, upstream = serve(block[9], [], port=8081)
    with socket.create_server((block[1], 0)) as backend, ExitStack() as opened:
        upstream = replace(upstream, backends=(Backend.at(ip_address(block[1]), backend.getsockname()[1]),))
        envoy = start(rendering((replace(listener, log=READER), upstream), logged_port(block, nodes("A", first=2))))
        reader = opened.enter_context(reading(envoy.directory))
        becomes(lambda: is_heard(reader, block[9]), "a line")
        claimed = [begin(block[9], opened) for _ in range(5)]
        for stream in [backend.accept()[0] for _ in claimed]:
            assert stream.recv(1, 0 if read else socket.MSG_PEEK) == b"x"
            stream.close()
        backend.close()
        refused = [begin(block[9], opened) for _ in range(5)]
        assert all(is_unanswered(client) for client, _ in claimed + refused)
        names = [{name for _, name in clients} for clients in (claimed, refused)]

        def reported() -> list[Line]:
            """Leave out those of the other port: a client may have had the number of one of these there."""
            return [line for line in reader.lines if line.listener == f"{block[9]}:8081/TCP"]

        becomes(lambda: set.union(*names) <= {line.client for line in reported()}, "all of them")
        accepted = {line.client for line in reported() if was_accepted(line)}
    assert [name & accepted for name in names] == [names[0], set()], reported()


@pytest.mark.envoy
def test_access_log_does_not_change_source_ranges(start: Start, nodes: Serve, block: Block) -> None:
    """A chain that names all addresses lets nobody else in."""
    start(logged(block, nodes("A"), sources=("10.0.0.0/8",)))
    assert ask_tcp(block[9], 8080) != "A"


@pytest.mark.envoy
def test_a_reader_that_does_not_go_on_gets_no_more_than_the_gate_lets_pass(
    start: Start, nodes: Serve, block: Block, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many come: this is what ends the log of a reader that was killed."""
    monkeypatch.setattr("locallb.traffic.reading.ENOUGH", 20)
    envoy = start(logged(block, nodes("A")))
    with reading(envoy.directory, renews=False) as reader:
        becomes(lambda: is_heard(reader, block[9]), "a line")
        for _ in range(100):
            speak(block[9])
        envoy.put(GATE, gate(3))
        late = list[str]()

        def is_reported() -> bool:
            late.append(speak(block[9]))
            return bool({*late} & {*reader.clients()})

        becomes(is_reported, "a line after all of them")
        assert len(reader.lines) <= CLOSED + 21 + 3


@pytest.mark.envoy
def test_killed_log_reader_does_not_hinder_the_next(start: Start, nodes: Serve, block: Block) -> None:
    """Neither its socket nor its lock. Meanwhile clients are served, and no file grows with what they do."""
    envoy = start(logged(block, nodes("A")))
    killed = Reader(envoy.directory)
    with pytest.raises(LogError, match="another `locallb logs`, or a view, reads"):
        Tap(envoy.directory)
    killed.stop(politely=False)
    before = sizes(envoy.directory)
    for _ in range(200):
        speak(block[9])
    assert sizes(envoy.directory) == before
    assert (envoy.directory / "log").stat().st_size <= COMPLAINT * (ENOUGH + 1)
    with reading(envoy.directory) as reader:
        becomes(lambda: is_heard(reader, block[9]), "a line")


@pytest.mark.envoy
def test_the_view_shows_the_latest_lines_until_it_lets_others_read(
    start: Start, nodes: Serve, block: Block, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of one load balancer, a few at most, the latest first."""
    envoy, key = start(logged(block, nodes("A"))), ObjectKey(ClusterName("c"), "n", "web")
    monkeypatch.setattr(traffic, "proxy_directories", lambda _plan, keys: {envoy.directory: None} if keys else {})
    monkeypatch.setattr(traffic, "services_by_listener", lambda _plan: {f"{block[9]}:8080/TCP": key})
    latest = traffic.LatestLines()
    assert latest.of(key, Plan()) == [(("none since this was opened", "dim"),)]

    def is_shown(client: str) -> bool:
        return any(client in text for text, _ in latest.of(key, Plan())[0])

    becomes(lambda: is_shown(speak(block[9])) or len(latest.of(key, Plan())) > 1, "some")
    mine = [speak(block[9]) for _ in range(20)]
    becomes(lambda: is_shown(mine[-1]), "the last one")
    assert len(latest.of(key, Plan())) == 8
    assert latest.of(key._replace(name="other"), Plan()) == []
    with reading(envoy.directory) as reader:
        becomes(lambda: is_heard(reader, block[9]), "a line")


def test_where_no_log_is_kept_there_is_none_to_read(tmp_path: Path) -> None:
    """It is said what to do; nothing is left in the directory."""
    assert [*TrafficReading().follow([tmp_path])] == [f"the proxy in {tmp_path} keeps no log yet: run `locallb up`"]
    assert not list(tmp_path.iterdir())


def test_a_gate_is_opened_again_now_and_then_whatever_came(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All that it let pass may be lost, where a reader was stopped for longer than messages wait."""
    (tmp_path / GATE).write_text(gate(CLOSED))
    tap = Tap(tmp_path)
    opened = (tmp_path / GATE).read_text()
    assert not tap.renew()
    assert (tmp_path / GATE).read_text() == opened
    monkeypatch.setattr("locallb.traffic.reading.IDLE", 0)
    assert not tap.renew()
    assert (tmp_path / GATE).read_text() not in {opened, gate(CLOSED)}
    tap.end()
    assert (tmp_path / GATE).read_text() == gate(CLOSED)


@pytest.mark.envoy
def test_envoy_watches_one_file_more(start: Start, nodes: Serve, block: Block) -> None:
    """However many listeners there are: the plan counts it."""
    servers = nodes("A")
    plain = start(logged(block, servers, "")).watches()
    listeners = [serve(block[10], servers, port=port) for port in (8080, 8081)]
    pairs = [(replace(listener, log=READER), upstream) for listener, upstream in listeners]
    assert start(rendering(*pairs)).watches() == plain + 1 + 1  # a second upstream's endpoints, and the gate


def encoded(number: int, content: bytes) -> bytes:
    sizes, size = bytearray(), len(content)
    while size > 0x7F:
        sizes.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes([number << 3 | 2, *sizes, size]) + content


def message(*records: dict[str, str]) -> bytes:
    """Write what Envoy would send, with fields that nobody asks for in between."""
    noise = b"\x09" + bytes(8) + b"\x15" + bytes(4) + b"\x18\x96\x01"

    def pair(name: str, value: str) -> bytes:
        return encoded(1, encoded(1, name.encode()) + encoded(2, encoded(1, value.encode())))

    bodies = [encoded(5, encoded(6, b"".join(pair(*item) for item in record.items()))) for record in records]
    return encoded(1, noise + encoded(2, noise + b"".join(encoded(2, noise + body) for body in bodies)))


WORDS = st.text(st.characters(codec="utf-8"), min_size=2)


@given(st.lists(st.tuples(WORDS, WORDS, st.integers(0, 1 << 60))))
def test_lines_are_read_as_they_were_written(reported: list[tuple[str, str, int]]) -> None:
    """Whatever clients put into paths."""
    records = [{"client": client, "path": path, "in": str(count), "flags": "-"} for client, path, count in reported]
    assert [(line.client, line.path, line.received) for line in lines(message(*records))] == reported


@given(st.binary(max_size=200))
def test_malformed_log_messages_are_refused_or_empty(content: bytes) -> None:
    """Only in one way."""
    try:
        list(lines(content))
    except ValueError:
        return
