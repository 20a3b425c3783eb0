"""Docker's events, from a daemon that dies, talks nonsense or says nothing: who follows them lives on."""

from __future__ import annotations

import json
import select
import socket
import socketserver
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from urllib3.util import connection

from locallb.model.identities import ImageName
from locallb.runtimes.docker import daemon as docker_daemon
from locallb.runtimes.docker import engine_api
from locallb.runtimes.docker.daemon import ContainersError, DockerAbsentError
from locallb.runtimes.docker.engine_api import ContainerEvents, Containers
from tests.support.descriptors import few_files, resources
from tests.support.servers import in_thread
from tests.support.waiting import becomes


def chunk(text: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(text), text)


def event(value: str) -> bytes:
    """Write an event of a container with the label `l`."""
    return chunk(json.dumps({"Action": "die", "Actor": {"Attributes": {"l": value}}}).encode() + b"\n")


class Daemon:
    """What says something when it is asked for events, and then ends or waits for the client to go."""

    def __init__(self) -> None:
        self.then = (b"", False)
        """What is said of events, and whether the connection ends behind it: one value, read at any moment."""
        self.requested = self.others = 0
        """Requests for events, and others."""
        self.hangs: bytes | None = None
        """Requests with this in their heads are taken and not answered, as long as it stands here."""

    def serve(self, connection: socket.socket) -> None:
        while head := self._head(connection):
            while self.hangs is not None and self.hangs in head:
                if select.select([connection], [], [], 0.01)[0]:
                    return
            if b"/events" not in head:
                self.others += 1
                body = json.dumps({"ApiVersion": "1.41", "Version": "x"}).encode()
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
                continue
            self.requested += 1
            stated, ends = self.then
            connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + stated)
            if ends:
                return

    def _head(self, connection: socket.socket) -> bytes:
        head = b""
        while b"\r\n\r\n" not in head:
            if not (part := connection.recv(65536)):
                return b""
            head += part
        return head


@contextmanager
def served(place: Path | tuple[str, int]) -> Iterator[tuple[Daemon, Any]]:
    """Serve on a socket there: a path, or an address and a port."""
    daemon = Daemon()
    kind: Any = socketserver.ThreadingTCPServer if isinstance(place, tuple) else socketserver.ThreadingUnixStreamServer

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            daemon.serve(self.request)

    class Server(kind):  # type: ignore[misc]  # one of two
        request_queue_size = 128  # docker-py leaks the socket of a connection that is refused
        daemon_threads = True

        def handle_error(self, *_: object) -> None:
            """Say nothing of clients that went away."""

    with in_thread(Server(place if isinstance(place, tuple) else str(place), Handler)) as server:
        yield daemon, server.server_address


@pytest.fixture
def docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Daemon]:
    """Let DOCKER_HOST name such a daemon, which is asked again soon."""
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/d.sock")
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    monkeypatch.setattr(engine_api, "_RETRY_DELAY", 0.01)
    with served(tmp_path / "d.sock") as (daemon, _):
        yield daemon


ODD = {
    "cut within a chunk": event("x")[:20],
    "cut after an event": event("x")[:-2],
    "no chunk": b"hello\r\n",
    "no JSON": chunk(b"hello\n") + b"0\r\n\r\n",
    "a number": chunk(b"7\n"),
    "a list": chunk(b"[]\n"),
    "an actor that is a text": chunk(b'{"Actor": "x"}\n'),
    "attributes that are null": chunk(b'{"Actor": {"Attributes": null}}\n'),
    "nothing": b"0\r\n\r\n",
}


@pytest.mark.parametrize("name", ODD)
def test_docker_events_are_followed_again_after_any_invalid_answer(docker: Daemon, name: str) -> None:
    """And the interruption is reported, as events may have been missed."""
    docker.then = ODD[name], True
    changed: list[str] = []
    presence: list[str] = []
    events = ContainerEvents("l", ("die",), changed.append, presence.append)
    becomes(lambda: docker.requested > 1)
    docker.then = event("p"), False
    becomes(lambda: "p" in changed, lambda: presence)
    becomes(lambda: presence[-1] == "")
    assert presence[0]
    events.stop()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask often, and wait for no answer for long."""
    monkeypatch.setattr(engine_api, "_SILENCE", 0.01)
    monkeypatch.setattr(engine_api, "ANSWER", 0.3)


@pytest.mark.usefixtures("impatient")
def test_a_daemon_that_hangs_is_known_to_be_away_and_back_once_it_answers(docker: Daemon) -> None:
    """Its host keeps what is connected, and takes what connects: only who asks finds out."""
    docker.then = event("a"), False
    changed: list[str] = []
    presence: list[str] = []
    events = ContainerEvents("l", ("die",), changed.append, presence.append)
    for _ in range(2):
        becomes(lambda: changed)
        docker.hangs = b""
        becomes(lambda: "takes connections and answers nothing: restart it" in "".join(presence[-1:]))
        changed.clear()
        docker.hangs = None
        becomes(lambda: presence[-1] == "")
    events.stop()


@pytest.mark.usefixtures("impatient")
def test_a_daemon_that_has_nothing_to_tell_is_there(docker: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    """For however long, as far as it answers: nobody is told that it is away, and it isn't asked for events again."""
    monkeypatch.setattr(engine_api, "ANSWER", 2.0)
    presence: list[str] = []
    events = ContainerEvents("l", ("die",), lambda _name: None, presence.append)
    becomes(lambda: docker.requested == 1)
    before = docker.others
    threading.Event().wait(3.0)  # longer than an answer may take
    becomes(lambda: docker.others > before + 3)
    assert (presence, docker.requested) == ([], 1)
    events.stop()


QUERIED: dict[str, tuple[bytes, Callable[[Containers], object]]] = {
    "at first": (b"", Containers.ping),
    "for what it has": (b"/containers/json", lambda daemon: daemon.labelled("l")),
    "for events": (b"/events", lambda daemon: daemon.events("l", ("die",), 0.0)),
    "for an image": (b"/images/create", lambda daemon: daemon.pull(ImageName("image:tag"))),
}


@pytest.mark.parametrize("name", QUERIED)
def test_no_question_to_a_daemon_that_hangs_is_asked_for_ever(
    docker: Daemon, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends in a sentence, whatever was asked."""
    monkeypatch.setattr(docker_daemon, "_LONGEST", 0.2)
    docker.hangs, ask = QUERIED[name]
    with (
        closing(Containers(0.2)) as containers,
        pytest.raises(DockerAbsentError, match="takes connections and answers nothing"),
    ):
        ask(containers)


@pytest.mark.usefixtures("docker")
def test_a_daemon_that_cannot_be_asked_is_not_absent() -> None:
    """Where this process has no descriptor left, what the daemon has counts as there."""
    reported = "can't be asked: Too many open files; raise the limit"
    with closing(Containers(60.0)) as containers:
        with few_files(0), pytest.raises(ContainersError, match=reported) as caught:
            containers.labelled("l")
        assert not isinstance(caught.value, DockerAbsentError)


@pytest.mark.parametrize("log", [b"", event("p")])
def test_stopping_ends_threads_and_connections_in_the_midst_of_a_silence(docker: Daemon, log: bytes) -> None:
    """Each edit of the configuration may stop and begin it."""
    docker.then = log, False
    before = resources()
    for number in range(1, 51):
        events = ContainerEvents("l", ("die",), lambda _name: None, lambda _why: None)
        if number % 2:
            becomes(lambda least=number // 2: docker.requested > least)  # type: ignore[misc]
        events.stop()
    becomes(lambda: resources() <= before, resources)


KEEPING = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)


def test_a_daemon_on_another_host_is_known_to_be_gone_within_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    """However silent it was: TCP asks while nobody says anything. One on this host can't go unnoticed."""
    made: list[socket.socket] = []
    real = connection.create_connection

    def connect(*args: Any, **terms: Any) -> socket.socket:  # noqa: ANN401 - urllib3's own
        made.append(real(*args, **terms))
        return made[-1]

    monkeypatch.setattr(connection, "create_connection", connect)
    with served(("127.0.0.1", 0)) as (_, (host, port)):
        monkeypatch.setenv("DOCKER_HOST", f"tcp://{host}:{port}")
        with closing(Containers()) as containers:
            stream = containers.events("l", ("die",), 0.0)
            assert made
            for opened in made:
                idle, between, times = (opened.getsockopt(socket.IPPROTO_TCP, option) for option in KEEPING)
                assert opened.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
                assert idle + between * times <= 60
            stream.cut()
