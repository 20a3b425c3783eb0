"""Envoy's admin interface: found by long paths too, and never waited for long."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from locallb.envoy import admin
from locallb.envoy.admin import EnvoyAdmin, EnvoyAdminError, Subscription

STATS = """\
cluster_manager.cds.version_text: "c1"
listener_manager.lds.version_text: ""
cluster_manager.cds.update_attempt: 2
cluster_manager.cds.update_failure: 0
cluster_manager.cds.update_rejected: 0
cluster_manager.cds.update_success: 2
listener_manager.lds.update_attempt: 3
listener_manager.lds.update_failure: 1
listener_manager.lds.update_rejected: 1
listener_manager.lds.update_success: 0
"""


@contextmanager
def answering(directory: Path, answer: bytes) -> Iterator[EnvoyAdmin]:
    """Serve one answer to every connection on the socket in `directory`."""
    directory.mkdir(parents=True, exist_ok=True)
    server = socket.socket(socket.AF_UNIX)
    descriptor = os.open(directory, os.O_PATH)
    server.bind(f"/proc/self/fd/{descriptor}/admin.sock")
    os.close(descriptor)
    server.listen()
    server.settimeout(0.02)
    done = threading.Event()

    def serve() -> None:
        while not done.is_set():
            try:
                client, _ = server.accept()
            except TimeoutError:
                continue
            with client:
                client.recv(4096)
                client.sendall(answer)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield EnvoyAdmin(directory)
    finally:
        done.set()
        thread.join()
        server.close()


def http(body: str, status: str = "200 OK") -> bytes:
    return f"HTTP/1.1 {status}\r\ncontent-length: {len(body)}\r\n\r\n{body}".encode()


def test_a_path_of_any_length_is_reached(tmp_path: Path) -> None:
    """Socket paths end at 107 bytes; ours are found through their directory."""
    with answering(tmp_path / ("x" * 100) / ("y" * 100), http("LIVE\n")) as admin:
        assert admin.ready()
        assert admin.answers()


def test_subscriptions_are_read_from_the_statistics(tmp_path: Path) -> None:
    """Versions, and whether the last attempt has an outcome."""
    with answering(tmp_path, http(STATS)) as admin:
        claimed = admin.versions()
    assert claimed.cds == Subscription("c1", 2, 2, 0)
    assert claimed.lds == Subscription("", 3, 0, 2)
    assert (claimed.cds.settled, claimed.lds.settled) == (True, False)


def test_failures_are_those_with_an_error(tmp_path: Path) -> None:
    """By name, with Envoy's reason; entries without a name are repetitions."""
    dump = '{"configs": [{"name": "a"}, {"name": "b", "error_state": {"details": "no"}}, {"error_state": {}}]}'
    with answering(tmp_path, http(dump)) as admin:
        assert admin.failed_listeners() == {"b": "no"}


def test_no_listener_at_all_is_an_empty_answer(tmp_path: Path) -> None:
    """Envoy leaves empty lists out."""
    with answering(tmp_path, http("{}")) as admin:
        assert admin.listeners() == frozenset()
        assert admin.failed_listeners() == {}


def test_missing_or_dead_admin_socket_gives_no_answer(tmp_path: Path) -> None:
    """No directory, no socket, a socket that a dead process left."""
    for directory in (tmp_path / "absent", tmp_path):
        assert not EnvoyAdmin(directory).ready()
        with pytest.raises(EnvoyAdminError, match="doesn't answer"):
            EnvoyAdmin(directory).listeners()
    with answering(tmp_path, b""):
        pass
    assert not EnvoyAdmin(tmp_path).answers()


@pytest.mark.parametrize(
    ("answer", "ask", "message"),
    [
        (http("no", "500 Internal Server Error"), EnvoyAdmin.drain, "answers /drain_listeners with 500: no"),
        (http("<html>"), EnvoyAdmin.listeners, "without JSON"),
        (b"garbage\r\n\r\n", EnvoyAdmin.versions, "doesn't answer /stats"),
        (b"", EnvoyAdmin.versions, "doesn't answer /stats"),
    ],
)
def test_an_odd_answer_is_reported(
    tmp_path: Path, answer: bytes, ask: Callable[[EnvoyAdmin], object], message: str
) -> None:
    """One sentence, whatever it is."""
    with answering(tmp_path, answer) as admin, pytest.raises(EnvoyAdminError, match=message):
        ask(admin)


def test_silence_ends_the_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody listens and never answers."""
    monkeypatch.setattr(admin, "TIMEOUT", 0.05)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "admin.sock"))
        server.listen()
        assert not EnvoyAdmin(tmp_path).answers()
