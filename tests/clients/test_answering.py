"""The small HTTP server, and what a supervisor is told."""

from __future__ import annotations

import http.client
import os
import socket
from collections.abc import Iterator
from ipaddress import ip_address
from pathlib import Path

import pytest

from locallb.clients import supervisor
from locallb.clients.answering import AT_ONCE, Answering, AnsweringError, Page

PAGES = {
    "/metrics": lambda accept: Page(f"for {accept}".encode(), "text/x"),
    "/sick": lambda _accept: Page(b"no\n", status=503),
}


@pytest.fixture(params=["127.0.0.1", "::1"])
def served(request: pytest.FixtureRequest) -> Iterator[tuple[str, int]]:
    """Serve pages on a free port; give address and port."""
    server = Answering(ip_address(request.param), 0, PAGES)
    server.start()
    host, _, number = server.place.rpartition(":")
    yield host.strip("[]"), int(number)
    server.stop()


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
    """With the client's Accept header, HEAD without a body, what isn't there with what is."""
    assert get(served, "/metrics?x=1") == (200, "text/x", b"for a/b")
    assert get(served, "/metrics", "HEAD") == (200, "text/x", b"")
    assert get(served, "/sick")[0] == 503
    status, _, body = get(served, "/")
    assert (status, body) == (404, b"there is /metrics, /sick\n")
    assert get(served, "/metrics", "POST")[0] == 501


def test_clients_that_say_nothing_hold_up_nobody_for_ever(served: tuple[str, int]) -> None:
    """All slots are taken by silent clients; once those go, the next is served."""
    silent = [socket.create_connection(served) for _ in range(AT_ONCE)]
    for one in silent:
        one.close()
    assert get(served, "/metrics")[0] == 200


def test_a_port_in_use_is_told_in_a_sentence() -> None:
    """With the remedy."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        number = other.getsockname()[1]
        with pytest.raises(AnsweringError, match=f"127.0.0.1 port {number} can't be listened on .*another port"):
            Answering(ip_address("127.0.0.1"), number, PAGES)


@pytest.mark.parametrize("abstract", [False, True])
def test_a_supervisor_gets_what_it_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, abstract: bool) -> None:
    """By a path, or by an abstract name as in containers."""
    place = f"@locallb-test-{os.getpid()}" if abstract else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.settimeout(20)
        listener.bind(f"\0{place[1:]}" if abstract else place)
        monkeypatch.setenv("NOTIFY_SOCKET", place)
        supervisor.notify("READY=1", "STATUS=fine")
        assert listener.recv(100) == b"READY=1\nSTATUS=fine"
        supervisor.reloading()
        assert listener.recv(100).startswith(b"RELOADING=1\nMONOTONIC_USEC=")


def test_without_a_supervisor_nothing_is_told_and_nothing_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """No socket, a socket that nobody has, a word that is none."""
    for place in ("", "/nonexistent/notify", "nonsense"):
        monkeypatch.setenv("NOTIFY_SOCKET", place)
        supervisor.notify("READY=1")


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
    assert supervisor.watchdog_seconds() == seconds
