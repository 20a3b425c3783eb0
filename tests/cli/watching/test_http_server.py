"""The small HTTP server, and what a supervisor is told."""

from __future__ import annotations

import http.client
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from ipaddress import ip_address
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from locallb.cli.watching import http_server, supervision
from locallb.cli.watching import http_server as http_messages
from locallb.cli.watching.http_server import (
    AT_ONCE,
    TIMEOUT,
    HttpRequest,
    HttpServer,
    HttpServerError,
    Page,
    Pages,
    answer,
)
from locallb.threads import Escape, Task, Threads
from tests.support.descriptors import resources

PAGES = {
    "/metrics": lambda request: Page(f"for {request.query} {' '.join(request.values('accept'))}".encode(), "text/x"),
    "/sick": lambda _request: Page(b"no\n", status=503),
}


@contextmanager
def serving(pages: Pages, address: str = "127.0.0.1") -> Iterator[tuple[str, int]]:
    """Serve pages on a free port; give address and port."""
    server = HttpServer(ip_address(address), 0, pages)
    server.start()
    host, _, number = server.place.rpartition(":")
    try:
        yield host.strip("[]"), int(number)
    finally:
        server.stop()


@pytest.fixture(params=["127.0.0.1", "::1"])
def served(request: pytest.FixtureRequest) -> Iterator[tuple[str, int]]:
    """Serve pages on a free port; give address and port."""
    with serving(PAGES, request.param) as place:
        yield place


def get(place: tuple[str, int], path: str, method: str = "GET") -> tuple[int, str, bytes]:
    """Ask, and give status, type and body."""
    connection = http.client.HTTPConnection(*place, timeout=20)
    try:
        connection.request(method, path, headers={"Accept": "a/b"})
        answer = connection.getresponse()
        return answer.status, answer.headers["Content-Type"], answer.read()
    finally:
        connection.close()


def test_pages_are_served_and_others_are_named(served: tuple[str, int]) -> None:
    """With the client's query and headers, HEAD without a body, what isn't there with what is."""
    assert get(served, "/metrics?x=1") == (200, "text/x", b"for x=1 a/b")
    assert get(served, "/metrics", "HEAD") == (200, "text/x", b"")
    assert get(served, "/sick")[0] == 503
    status, _, body = get(served, "/")
    assert (status, body) == (404, b"there is /metrics, /sick\n")
    assert get(served, "/metrics", "POST")[0] == 501


def test_clients_that_say_nothing_delay_no_others_for_ever(served: tuple[str, int]) -> None:
    """All slots are taken by silent clients; once those go, the next is served."""
    silent = [socket.create_connection(served) for _ in range(AT_ONCE)]
    for client in silent:
        client.close()
    assert get(served, "/metrics")[0] == 200


@pytest.mark.parametrize("beginning", [b"", b"GET /metrics HTTP/1.1\r\n", b"GET /metrics HTTP/1.1\r\nAccept: a", b"\0"])
def test_clients_that_are_slow_delay_no_others(served: tuple[str, int], beginning: bytes) -> None:
    """More than there is room for, none of which ever finishes: whoever asks is answered."""
    with ExitStack() as stack:
        for _ in range(3 * AT_ONCE):
            slow = stack.enter_context(socket.create_connection(served))
            slow.sendall(beginning)
            assert get(served, "/metrics")[0] == 200


def test_the_client_that_has_been_there_longest_goes_first(served: tuple[str, int]) -> None:
    """Where there is no room for another one."""
    with ExitStack() as stack:
        slow = [stack.enter_context(socket.create_connection(served)) for _ in range(AT_ONCE + 1)]
        slow[0].settimeout(20)
        assert slow[0].recv(1) == b""
        slow[-1].sendall(b"HEAD /metrics HTTP/1.0\n\n")
        slow[-1].settimeout(20)
        assert slow[-1].recv(15) == b"HTTP/1.0 200 OK"


def sent(client: socket.socket) -> bool:
    """Send a byte after a while; return whether that was possible."""
    time.sleep(0.005)
    try:
        client.sendall(b"x")
    except OSError:
        return False
    return True


def test_a_request_has_a_deadline_however_busily_it_drips(monkeypatch: pytest.MonkeyPatch) -> None:
    """For the whole of it; a head without an end has a largest size before that."""
    monkeypatch.setattr(http_server, "TIMEOUT", 0.3)
    with serving(PAGES) as place, socket.create_connection(place) as client:
        assert not all(sent(client) for _ in range(2000))
    with serving(PAGES) as place, socket.create_connection(place) as client, suppress(OSError):
        client.settimeout(20)
        client.sendall(b"x" * 20_000)
        assert client.recv(1) == b""


def test_client_that_reads_no_response_is_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    """After the same time."""
    monkeypatch.setattr(http_server, "TIMEOUT", 0.3)
    large = {"/metrics": lambda _request: Page(b"x" * (32 << 20))}
    with serving(large) as place, socket.create_connection(place) as client:
        client.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        time.sleep(0.6)  # longer than it may
        client.settimeout(20)
        claimed = 0
        with suppress(ConnectionError):
            while part := client.recv(1 << 20):
                claimed += len(part)
    assert claimed < 32 << 20


@pytest.mark.parametrize("beginning", [b"", b"GET /m", b"GET /metrics HTTP/1.0\r\n\r\n"])
def test_stopping_takes_no_longer_whatever_clients_do(beginning: bytes) -> None:
    """All the room is taken; nothing of it stays."""
    before = resources()
    with ExitStack() as stack:
        server = HttpServer(ip_address("127.0.0.1"), 0, {"/metrics": lambda _request: Page(b"x" * (32 << 20))})
        server.start()
        host, _, number = server.place.rpartition(":")
        for _ in range(AT_ONCE):
            stack.enter_context(socket.create_connection((host, int(number)))).sendall(beginning)
        stopper = threading.Thread(target=server.stop)
        stopper.start()
        stopper.join(TIMEOUT / 2)
        assert not stopper.is_alive(), "it waits for clients"
    assert resources() == before


def test_a_page_that_cannot_be_made_is_reported_and_the_others_are_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """As an error of ours: told, counted, with the sentence as the answer."""
    mine, reported = Threads(), list[Escape]()
    monkeypatch.setattr(http_messages, "THREADS", mine)
    mine.listen(reported.append)

    def broken(_request: HttpRequest) -> Page:
        raise KeyError("what")

    with serving({**PAGES, "/broken": broken}) as place:
        status, _, body = get(place, "/broken")
        assert (status, body.decode().strip()) == (500, reported[0].sentence)
        assert "KeyError: 'what'" in reported[0].sentence
        assert get(place, "/metrics")[0] == 200
    assert mine.counts()[Task.HTTP] == 1


@given(st.binary(max_size=200) | st.text(" /:\r\nGETHADmetricsAcp\0", max_size=60).map(str.encode))
def test_every_http_request_gets_a_response(head: bytes) -> None:
    """Nothing escapes."""
    assert answer(head, PAGES).data.startswith(b"HTTP/1.0 ")


def test_a_port_in_use_is_reported_in_a_sentence() -> None:
    """With the remedy."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        number = other.getsockname()[1]
        with pytest.raises(
            HttpServerError,
            match=rf"127.0.0.1 port {number} can't be listened on \(Address already in use\): choose another port",
        ):
            HttpServer(ip_address("127.0.0.1"), number, PAGES)


@pytest.mark.parametrize("abstract", [False, True])
def test_sd_notify_messages_reach_path_and_abstract_sockets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, abstract: bool
) -> None:
    """By a path, or by an abstract name as in containers."""
    place = f"@locallb-test-{os.getpid()}" if abstract else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.settimeout(20)
        listener.bind(f"\0{place[1:]}" if abstract else place)
        monkeypatch.setenv("NOTIFY_SOCKET", place)
        supervision.notify("READY=1", "STATUS=fine")
        assert listener.recv(100) == b"READY=1\nSTATUS=fine"
        supervision.reloading()
        assert listener.recv(100).startswith(b"RELOADING=1\nMONOTONIC_USEC=")


def test_sd_notify_without_a_usable_socket_does_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """No socket, a socket that nobody has, a word that is none."""
    for place in ("", "/nonexistent/notify", "nonsense"):
        monkeypatch.setenv("NOTIFY_SOCKET", place)
        supervision.notify("READY=1")


@pytest.mark.parametrize(
    ("wanted", "pid", "seconds"),
    [("4000000", "", 4.0), ("4000000", "self", 4.0), ("4000000", "1", None), ("0", "", None), ("", "", None)],
)
def test_the_watchdog_is_fed_if_it_is_ours(
    monkeypatch: pytest.MonkeyPatch, wanted: str, pid: str, seconds: float | None
) -> None:
    """WATCHDOG_PID may name another process."""
    monkeypatch.setenv("WATCHDOG_USEC", wanted)
    monkeypatch.setenv("WATCHDOG_PID", str(os.getpid()) if pid == "self" else pid)
    assert supervision.watchdog_seconds() == seconds
