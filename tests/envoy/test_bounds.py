"""What clients and backends may cost a proxy: memory, sockets and time are bounded, and what is refused is refused."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, suppress
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from subprocess import run

import pytest

from locallb.envoy import Rendered, overload
from locallb.envoy.admin import EnvoyAdmin
from locallb.model.http_routes import Forward, HttpRoute, Match, Target
from locallb.model.http_serving import HttpBackends
from locallb.model.identities import Protocol, UpstreamName
from locallb.model.serving import Backend, Listener, Upstream
from locallb.traffic.figures import STATISTICS, by_upstream, rejected
from tests.envoy.conftest import Serve, Start
from tests.support import http_traffic
from tests.support.envoy import Envoy, rendering, serve
from tests.support.envoy_traffic import Block, ask_tcp, ask_udp
from tests.support.http_traffic import Client, Echo, upstream
from tests.support.waiting import becomes

pytestmark = pytest.mark.envoy
STALLED, MIB = 200, 1 << 20
ALLOWED = 120 * MIB
"""Bytes that so many stalled uploads may cost."""
EVERYTHING = HttpRoute(Match(), Forward((Target(UpstreamName("web")),)))


@pytest.fixture
def running() -> Iterator[ExitStack]:
    """Keep what runs until the test ends."""
    with ExitStack() as stack:
        yield stack


def _deaf(running: ExitStack, address: str) -> tuple[Backend, list[socket.socket]]:
    """Run a backend that accepts connections, which it returns, and never reads."""
    server = running.enter_context(socket.create_server((address, 0), backlog=2 * STALLED))
    server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)

    accepted: list[socket.socket] = []

    def accept() -> None:
        with suppress(OSError):
            while True:
                accepted.append(running.enter_context(server.accept()[0]))

    threading.Thread(target=accept, daemon=True).start()
    return Backend.at(ip_address(address), server.getsockname()[1]), accepted


def _resident(envoy: Envoy) -> int:
    """Return the bytes of memory that an Envoy has."""
    return int(Path(f"/proc/{envoy.process.pid}/statm").read_text().split()[1]) * 4096


def _upload(running: ExitStack, place: tuple[str, int], begin: bytes, accepted: Sequence[socket.socket]) -> None:
    """Open uploads, and send until none is taken any further."""
    clients = [running.enter_context(socket.create_connection(place)) for _ in range(STALLED)]
    for client in clients:
        client.sendall(begin)
        client.settimeout(0.05)
    becomes(lambda: len(accepted) >= STALLED, "all connections to the backend")
    piece, going = b"x" * 65_536, clients
    while going:
        going = [client for client in going if _sent(client, piece)]


def _sent(client: socket.socket, piece: bytes) -> bool:
    try:
        return client.send(piece) > 0
    except OSError:  # also of one whose backend didn't accept in time, on a busy machine
        return False


@pytest.mark.parametrize("kind", ["connections", "requests"])
def test_stalled_uploads_keep_little_memory(kind: str, start: Start, block: Block, running: ExitStack) -> None:
    """The backend doesn't read: the proxy doesn't either, once it has kept a little of each."""
    backend, accepted = _deaf(running, block[1])
    if kind == "requests":
        web = Upstream(UpstreamName("web"), Protocol.TCP, (backend,), http=HttpBackends())
        rendered = http_traffic.rendering(block[9], [EVERYTHING], [web])
    else:
        listener = Listener(ip_address(block[9]), 8080, Protocol.TCP, UpstreamName("tcp-8080"))
        rendered = rendering((listener, Upstream(UpstreamName("tcp-8080"), Protocol.TCP, (backend,))))
    envoy = start(rendered)
    before = _resident(envoy)
    begin = b"POST / HTTP/1.1\r\nhost: a.test\r\ncontent-length: 1000000000\r\n\r\n"
    _upload(running, (block[9], 8080), begin, accepted)
    assert _resident(envoy) - before < ALLOWED


def _changed(rendered: Rendered, name: str, change: Callable[[str], str]) -> Rendered:
    """Change a file's text, which must change by that."""
    text = change(rendered.files[name])
    assert text != rendered.files[name]
    return Rendered({**rendered.files, name: text}, rendered.versions)


def test_requests_and_connections_are_refused_before_memory_ends(start: Start, block: Block, nodes: Serve) -> None:
    """With the heap used up, here from the start: nothing new is served, and Envoy lives on."""
    rendered = _changed(
        rendering(serve(block[9], nodes("A"))),
        "bootstrap.json",
        lambda text: text.replace(str(overload.MAX_HEAP), str(MIB)),
    )
    envoy = start(rendered)
    becomes(lambda: ask_tcp(block[9], 8080) != "A", "no connection is accepted")
    assert envoy.process.poll() is None


def test_requests_on_open_connections_are_refused_before_memory_ends(
    start: Start, block: Block, echoes: dict[str, Echo]
) -> None:
    """With 503, as the heap is used up by more than nine tenths of what is allowed."""
    rendered = http_traffic.rendering(block[9], [EVERYTHING], [upstream("web", echoes["a"])])
    small = _changed(rendered, "bootstrap.json", lambda text: text.replace(str(overload.MAX_HEAP), str(MIB)))
    start(_changed(small, "bootstrap.json", _without_action("stop_accepting_connections")))
    with closing(Client(block[9])) as client:
        becomes(lambda: client.ask().status == 503, "requests are refused")


def test_stalled_uploads_of_clients_that_are_gone_are_ended_before_memory_ends(
    start: Start, block: Block, running: ExitStack
) -> None:
    """Their ends can't be noticed, as nothing of them is read: the backend would keep the heap full for ever."""
    backend, accepted = _deaf(running, block[1])
    web = Upstream(UpstreamName("web"), Protocol.TCP, (backend,), http=HttpBackends())
    rendered = http_traffic.rendering(block[9], [EVERYTHING], [web])
    soon = _changed(rendered, "bootstrap.json", lambda text: text.replace(overload.STALLED, "5s"))
    start(_changed(soon, "bootstrap.json", lambda text: text.replace(str(overload.MAX_HEAP), str(32 * MIB))))
    begin = b"POST / HTTP/1.1\r\nhost: a.test\r\ncontent-length: 1000000000\r\n\r\n"
    with ExitStack() as removed:
        for _ in range(STALLED):
            upload = removed.enter_context(socket.create_connection((block[9], 8080)))
            upload.settimeout(0.05)
            _send_until_it_stalls(upload, begin)
            if not _is_claimed(block[9], accepted):
                break  # the heap is full; on a slow machine the first ones are ended before it is
    becomes(lambda: _is_claimed(block[9], accepted), "requests reach the backend again")


def _send_until_it_stalls(upload: socket.socket, begin: bytes) -> None:
    piece = begin
    while _sent(upload, piece):
        piece = b"x" * 65_536


def _is_claimed(address: str, accepted: Sequence[socket.socket]) -> bool:
    """Return whether a request gets to the backend, which never answers, instead of being refused."""
    before = len(accepted)
    with socket.create_connection((address, 8080)) as client:
        client.settimeout(0.05)
        client.sendall(b"GET / HTTP/1.1\r\nhost: a.test\r\n\r\n")
        for _ in range(100):
            with suppress(TimeoutError):
                return not client.recv(100).startswith(b"HTTP/1.1 503")
            if len(accepted) > before:
                return True
    return False


def _without_action(name: str) -> Callable[[str], str]:
    def change(text: str) -> str:
        bootstrap = json.loads(text)
        manager = bootstrap["overload_manager"]
        manager["actions"] = [each for each in manager["actions"] if not each["name"].endswith(name)]
        return json.dumps(bootstrap)

    return change


def test_sessions_of_a_udp_port_are_bounded(start: Start, block: Block, nodes: Serve) -> None:
    """One more client than there may be is left out; those before it go on."""
    rendered = _changed(
        rendering(serve(block[9], nodes("A"), Protocol.UDP)),
        "cds.json",
        lambda text: text.replace(f'"max_connections":{overload.MAX_SESSIONS}', '"max_connections":2'),
    )
    start(rendered)
    clients = [block[number] for number in (21, 22, 23)]
    with ExitStack() as stack:
        sessions = [stack.enter_context(_session(client, (block[9], 8080))) for client in clients]
        assert [_answered(session) for session in sessions] == [True, True, False]
        assert [_answered(session) for session in sessions[:2]] == [True, True]
    assert ask_udp(block[9], 8080, timeout=0.5) == "TimeoutError"


def _session(source: str, place: tuple[str, int]) -> socket.socket:
    client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    client.settimeout(0.5)
    client.bind((source, 0))
    client.connect(place)
    return client


def _answered(client: socket.socket) -> bool:
    client.send(b"?")
    try:
        return client.recv(10) == b"A"
    except OSError:
        return False


def test_half_a_request_ends(start: Start, block: Block, echoes: dict[str, Echo]) -> None:
    """Headers that aren't complete in time are answered 408; here after a second instead of 30."""
    rendered = http_traffic.rendering(block[9], [EVERYTHING], [upstream("web", echoes["a"])])
    start(
        _changed(
            rendered,
            "lds.json",
            lambda text: text.replace('"request_headers_timeout":"30s"', '"request_headers_timeout":"1s"'),
        )
    )
    with socket.create_connection((block[9], 8080), 20) as client:
        client.sendall(b"GET / HTTP/1.1\r\nhost: a.test\r\nx-half: ")
        assert client.recv(100).startswith(b"HTTP/1.1 408")


@pytest.mark.parametrize("size", [(900, 10), (3, 60_000)])
def test_many_and_large_headers_pass(size: tuple[int, int], start: Start, block: Block, running: ExitStack) -> None:
    """Both clients: up to a thousand of them, and 256 KiB."""
    count, length = size
    fields = "".join(f"x-{number}: {'a' * length}\r\n" for number in range(count))
    server = running.enter_context(socket.create_server((block[1], 0)))
    backend = Backend.at(ip_address(block[1]), server.getsockname()[1])
    web = Upstream(UpstreamName("web"), Protocol.TCP, (backend,), http=HttpBackends())
    start(http_traffic.rendering(block[9], [EVERYTHING], [web]))
    heads = []

    def answer() -> None:
        with server.accept()[0] as connection, connection.makefile("rb") as requested:
            heads.append(sum(line.startswith(b"x-") and b"aaa" in line for line in iter(requested.readline, b"\r\n")))
            connection.sendall(f"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n{fields}\r\n".encode())

    threading.Thread(target=answer, daemon=True).start()
    with socket.create_connection((block[9], 8080), 20) as client, client.makefile("rb") as answered:
        client.sendall(f"GET / HTTP/1.1\r\nhost: a.test\r\n{fields}\r\n".encode())
        lines = list(iter(answered.readline, b"\r\n"))
    assert lines[0].startswith(b"HTTP/1.1 200")
    assert (heads, sum(line.startswith(b"x-") and b"aaa" in line for line in lines)) == ([count], count)


def test_requests_that_are_rejected_by_their_form_are_counted(
    start: Start, block: Block, echoes: dict[str, Echo]
) -> None:
    """By HTTP/1 and HTTP/2, with too many headers, too large ones, or no HTTP at all; no backend hears of them."""
    envoy = start(http_traffic.rendering(block[9], [EVERYTHING], [upstream("web", echoes["a"])]))
    requested = EnvoyAdmin(envoy.directory)

    def count() -> int | None:
        return rejected(requested.statistics(STATISTICS))

    def is_counted(number: int) -> bool:
        return count() == number

    assert count() == 0
    place = f"http://{block[9]}:8080/"
    many = [word for number in range(1100) for word in ("--header", f"x-{number}: a")]
    large = [word for number in range(4) for word in ("--header", f"x-{number}: {'a' * 100_000}")]
    clients = ((many, "--http1.1"), (large, "--http1.1"), (many, "--http2-prior-knowledge"))
    for number, (headers, version) in enumerate(clients, 1):
        run(["curl", "--silent", "--output", "/dev/null", "--max-time", "20", version, *headers, place], check=False)
        becomes(partial(is_counted, number), f"request {number} is counted")
    with socket.create_connection((block[9], 8080), 20) as client:
        client.sendall(b"no HTTP\r\n\r\n")
        assert client.recv(100).startswith(b"HTTP/1.1 400")
    assert count() == 4
    assert by_upstream(requested.clusters(), ())["web"].total.requests == 0
