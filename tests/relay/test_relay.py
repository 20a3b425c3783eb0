"""A relay's process against a server that forwards ports, also in faulty ways."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, chdir, closing, contextmanager, suppress
from pathlib import Path

import pytest

from locallb.kubernetes.api import upgrade
from locallb.kubernetes.api.servers import KubeError
from locallb.kubernetes.api.upgrade import Upgraded, upgraded
from locallb.model.identities import ClusterName, Home, ObjectKey, Owner
from locallb.model.relays import RelayedPort
from locallb.model.snapshot import Access
from locallb.relay import process, relay_directory
from locallb.relay.carriers import Carrier, Client, UntakenError
from locallb.relay.process import Relay
from locallb.relay.relay_directory import Answer, Served
from tests.support.portforward import ForwardingApi, forwarding_api
from tests.support.waiting import becomes

OWNER = Owner(Home("/srv/project", "dev", "locallb"), ObjectKey(ClusterName(""), "demo", "pod-relay"))


@pytest.fixture(autouse=True)
def _near(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Paths of sockets are short where they are relative."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def api(tmp_path: Path) -> Iterator[ForwardingApi]:
    with forwarding_api(tmp_path) as running:
        yield running


@contextmanager
def relay(access: Access, *ports: RelayedPort) -> Iterator[subprocess.Popen[str]]:
    """Run a relay in the directory `relay`, until it listens."""
    directory = Path("relay").absolute()
    relay_directory.write(directory, Served(access, ports, "1", OWNER))
    terms = [sys.executable, "-m", "locallb.relay", str(directory)]
    with subprocess.Popen(terms, text=True, stderr=subprocess.PIPE) as process:
        try:
            becomes(lambda: process.poll() is not None or relay_directory.ask(directory))
            yield process
        finally:
            process.terminate()
            if process.stderr and not process.stderr.closed:
                process.communicate()


@contextmanager
def pod(answer: Callable[[socket.socket], object]) -> Iterator[int]:
    """Run what answers on a port of this host; each connection in a thread."""
    with socket.create_server(("127.0.0.1", 0), backlog=200) as server:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    connection, _ = server.accept()
                    threading.Thread(target=_answer, args=(connection,), daemon=True).start()

        def _answer(connection: socket.socket) -> None:
            with connection, suppress(OSError):
                answer(connection)

        threading.Thread(target=serve, daemon=True).start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)


def echo(connection: socket.socket) -> None:
    while data := connection.recv(1 << 16):
        connection.sendall(data)


def greet(connection: socket.socket) -> None:
    connection.sendall(b"welcome")


def hello(name: bytes) -> Callable[[socket.socket], None]:
    def answer(connection: socket.socket) -> None:
        if connection.recv(100):
            connection.sendall(name)

    return answer


def port_of(number: int, name: str = "web-1", group: str = "web") -> RelayedPort:
    return RelayedPort(group, "shop", name, number)


def send_all(client: socket.socket, data: bytes) -> None:
    client.sendall(data)
    client.shutdown(socket.SHUT_WR)


def connected(port: RelayedPort) -> socket.socket:
    client = socket.socket(socket.AF_UNIX)
    client.settimeout(60)
    try:
        client.connect(f"relay/{port.socket}")
    except OSError:
        client.close()
        raise
    return client


def asked(port: RelayedPort, request: bytes = b"hi") -> bytes:
    """Return all that a pod answers."""
    with connected(port) as client:
        client.sendall(request)
        answer = b""
        with suppress(ConnectionError):
            while data := client.recv(1 << 16):
                answer += data
        return answer


def test_clients_follow_each_other_on_one_connection(api: ForwardingApi) -> None:
    with pod(hello(b"web-1")) as number, relay(api.access, port_of(number)):
        assert [asked(port_of(number)) for _ in range(20)] == [b"web-1"] * 20
    assert api.requests == ["/api/v1/namespaces/shop/pods/web-1/portforward"]
    assert api.tokens == ["Bearer t"]


def test_bytes_pass_both_ways_unchanged(api: ForwardingApi) -> None:
    sent = os.urandom(1 << 20) * 8
    with pod(echo) as number, relay(api.access, port_of(number)), connected(port_of(number)) as client:
        threading.Thread(target=send_all, args=(client, sent)).start()
        received = bytearray()
        while data := client.recv(1 << 20):
            received += data
    assert received == sent


def test_pods_that_speak_first_are_heard(api: ForwardingApi) -> None:
    with pod(greet) as number, relay(api.access, port_of(number)), connected(port_of(number)) as client:
        assert client.recv(100) == b"welcome"


def test_bytes_may_come_before_the_reply_to_the_other_stream(api: ForwardingApi) -> None:
    api.faults["web-1"] = "late"
    with pod(greet) as number, relay(api.access, port_of(number)), connected(port_of(number)) as client:
        assert client.recv(100) == b"welcome"


def test_many_clients_at_once(api: ForwardingApi) -> None:
    with pod(echo) as number, relay(api.access, port_of(number)), ExitStack() as stack:
        clients = [stack.enter_context(closing(connected(port_of(number)))) for _ in range(100)]
        for index, client in enumerate(clients):
            client.sendall(b"%d" % index)
        assert [client.recv(100) for client in clients] == [b"%d" % index for index in range(100)]


def test_health_checks_open_nothing(api: ForwardingApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "_FIRST_BYTES", 60)
    Path("relay").mkdir()
    with pod(echo) as number:
        ports = (port_of(number),)
        assert asyncio.run(_of_each(Served(api.access, ports, "1", OWNER), _checked_before)) == [b"x"]
    assert len(api.streams) == 1


def _checked_before(port: RelayedPort) -> bytes:
    for _ in range(10):
        connected(port).close()
    return asked_once(port)


def asked_once(port: RelayedPort) -> bytes:
    with connected(port) as client:
        client.sendall(b"x")
        return client.recv(1)


def test_a_slow_client_holds_up_nobody_and_fills_nothing(api: ForwardingApi) -> None:
    """A flood that no one reads stays with its pod, within what kernels buffer."""
    sent = [0]

    def flood(connection: socket.socket) -> None:
        if connection.recv(1) == b"f":
            while True:
                sent[0] += connection.send(bytes(1 << 16))
        else:
            connection.sendall(b"ok")

    with pod(flood) as number, relay(api.access, port_of(number)) as process, connected(port_of(number)) as client:
        client.sendall(b"f")
        before = -1
        while sent[0] != before or not before:
            before = sent[0]
            assert asked(port_of(number), b"x") == b"ok"
            threading.Event().wait(0.2)
        resident = int(re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{process.pid}/status").read_text())[1])  # type: ignore[index]
    assert before < 64 << 20
    assert resident < 150_000


@pytest.mark.parametrize("fault", ["403", "404", "500", "closes", "rubbish", "half", "goes"])
def test_another_pod_stands_in(api: ForwardingApi, fault: str) -> None:
    api.faults["bad"] = fault
    with pod(hello(b"good")) as number:
        bad, good = port_of(number, "bad"), port_of(number, "good")
        with relay(api.access, bad, good):
            assert [asked(bad) for _ in range(5)] == [b"good"] * 5


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["silent", "mute", "endless"])
def test_silence_ends(api: ForwardingApi, fault: str) -> None:
    api.faults["bad"] = fault
    with pod(hello(b"good")) as number:
        bad, good = port_of(number, "bad"), port_of(number, "good")
        with relay(api.access, bad, good):
            assert asked(bad) == b"good"


def test_a_pod_that_nobody_listens_in_has_taken_nothing(api: ForwardingApi) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        refusing = closed.getsockname()[1]
    with pod(hello(b"good")) as number:
        bad, good = port_of(refusing, "bad"), port_of(number, "good")
        with relay(api.access, bad, good):
            assert asked(bad) == b"good"


@pytest.mark.parametrize("fault", ["lost", "drops"])
def test_a_request_that_may_have_been_taken_is_not_sent_twice(api: ForwardingApi, fault: str) -> None:
    api.faults["bad"] = fault
    with pod(hello(b"good")) as number:
        bad, good = port_of(1, "bad"), port_of(number, "good")
        with relay(api.access, bad, good):
            assert asked(bad) == b""
            assert asked(good) == b"good"


def test_a_new_pod_of_the_same_name_is_reached_at_once(api: ForwardingApi) -> None:
    """Connections that waited lead to the former one, which is gone."""
    with pod(echo) as number, relay(api.access, port_of(number)), ExitStack() as stack:
        for client in [stack.enter_context(connected(port_of(number))) for _ in range(5)]:
            client.sendall(b"x")
            assert client.recv(1) == b"x"
        stack.close()
        api.replaced.add("web-1")
        assert [asked_once(port_of(number)) for _ in range(10)] == [b"x"] * 10


def test_an_answer_before_the_end_of_a_connection_is_whole(api: ForwardingApi) -> None:
    api.faults["web-1"] = "leaves"
    with pod(echo) as number, relay(api.access, port_of(number)):
        assert [asked(port_of(number)) for _ in range(3)] == [b"all of it"] * 3


def test_a_pod_may_leave_its_client_waiting(api: ForwardingApi) -> None:
    """No timeout of TCP ends a connection to a peer that lives and doesn't read."""
    connection = upgraded(api.access, "shop", "web-1")
    assert connection.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 0
    assert connection.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 30
    connection.close()


def test_an_answer_that_drips_ends(api: ForwardingApi, monkeypatch: pytest.MonkeyPatch) -> None:
    """However little comes at a time."""
    monkeypatch.setattr(upgrade, "WHOLE", 0.5)
    api.faults["web-1"] = "drips"
    with pytest.raises(KubeError, match="takes longer than it may"):
        upgraded(api.access, "shop", "web-1")


def test_ports_without_clients_take_no_place(api: ForwardingApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "MAX_CLIENTS", 2)
    with pod(hello(b"hi")) as number:
        Path("relay").mkdir()
        ports = [port_of(number, f"web-{index}") for index in range(5)]
        assert asyncio.run(_of_each(Served(api.access, tuple(ports), "1", OWNER), asked)) == [b"hi"] * 5


async def _of_each(served: Served, ask: Callable[[RelayedPort], bytes]) -> list[bytes]:
    """Ask each port of a relay in this process."""
    running = Relay(served)
    with chdir("relay"):
        running.apply(served)
    try:
        async with asyncio.timeout(60):
            return [await asyncio.to_thread(ask, port) for port in served.ports]
    finally:
        with chdir("relay"):
            await running.close()


@pytest.mark.parametrize("later", range(8))
def test_no_byte_is_lost_where_a_pod_refuses_while_a_client_sends(later: int) -> None:
    """Bytes are either noted for another pod or still there, whichever comes first."""
    assert asyncio.run(_refused_while_sending(later)) == b"first, second"


async def _refused_while_sending(later: int) -> bytes:
    with ExitStack() as stack:
        ours, theirs, client, sender = (
            stack.enter_context(each) for _ in range(2) for each in socket.socketpair(socket.AF_UNIX)
        )
        ours.setblocking(False)
        client.setblocking(False)
        carrier, carried = Carrier(Upgraded(ours, ())), Client(client)
        theirs.sendall(b"".join(struct.pack(">HHIII", 0x8003, 2, 8, stream, 0) for stream in (1, 3)))
        await carrier.open(80)
        carrying = asyncio.create_task(carrier.carry(carried))
        sender.sendall(b"first, ")
        for _ in range(20):
            await asyncio.sleep(0)
        assert bytes(carried.unanswered or b"") == b"first, "
        why = b"connection refused"
        theirs.sendall(struct.pack(">II", 1, 1 << 24 | len(why)) + why)
        for _ in range(later):
            await asyncio.sleep(0)
        sender.sendall(b"second")
        with pytest.raises(UntakenError):
            await carrying
        rest = b""
        with suppress(BlockingIOError):
            rest = client.recv(100)
        return bytes(carried.unanswered or b"") + rest


def test_pods_of_another_service_never_stand_in(api: ForwardingApi) -> None:
    api.faults["bad"] = "404"
    with pod(hello(b"good")) as number:
        bad, other = port_of(number, "bad"), port_of(number, "good", "other")
        with relay(api.access, bad, other) as process:
            assert asked(bad) == b""
            process.terminate()
            said = process.communicate()[1]
    assert "Pod shop/bad" in said
    assert "404" in said


def test_a_token_is_read_again(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("old")
    with forwarding_api(tmp_path, user={"tokenFile": str(token)}) as api, pod(hello(b"hi")) as number:
        api.faults["web-1"] = "expired"
        with relay(api.access, port_of(number)) as process:
            assert asked(port_of(number)) == b""
            token.write_text("new")
            assert asked(port_of(number)) == b"hi"
            process.terminate()
            assert "old" not in process.communicate()[1]
    assert api.tokens[-1] == "Bearer new"
    assert "new" not in Path("relay/relay.json").read_text()


def test_too_few_open_files_are_named_with_the_remedy(api: ForwardingApi) -> None:
    directory = Path("relay").absolute()
    ports = tuple(port_of(80, f"web-{number}") for number in range(200))
    relay_directory.write(directory, Served(api.access, ports, "1", OWNER))
    terms = ["sh", "-c", 'ulimit -n 100; exec "$@"', "sh", sys.executable, "-m", "locallb.relay", str(directory)]
    done = subprocess.run(terms, check=False, text=True, capture_output=True)
    assert done.returncode == 1
    assert "raise the limit of open files" in done.stderr


def test_another_list_of_ports_takes_effect_when_asked(api: ForwardingApi) -> None:
    directory = Path("relay").absolute()
    with pod(echo) as number:
        first, second = port_of(number, "web-1"), port_of(number, "web-2")
        with relay(api.access, first), connected(first) as client:
            client.sendall(b"1")
            assert client.recv(1) == b"1"
            relay_directory.write(directory, Served(api.access, (second,), "2", OWNER))
            answer = relay_directory.ask(directory)
            assert answer is not None
            assert (answer.version, answer.problem) == ("2", "")
            with pytest.raises(FileNotFoundError):
                connected(first)
            assert asked_once(second) == b"x"
            client.sendall(b"2")
            assert client.recv(1) == b"2"


def test_another_access_serves_the_next_client(api: ForwardingApi, tmp_path: Path) -> None:
    directory, other = Path("relay").absolute(), tmp_path / "other"
    other.mkdir()
    with forwarding_api(other) as second, pod(echo) as number, relay(api.access, port_of(number)):
        with connected(port_of(number)) as client:
            client.sendall(b"1")
            assert client.recv(1) == b"1"
            relay_directory.write(directory, Served(second.access, (port_of(number),), "2", OWNER))
            assert relay_directory.ask(directory) == Answer("2")
            assert asked_once(port_of(number)) == b"x"
            client.sendall(b"2")
            assert client.recv(1) == b"2"
        assert [asked_once(port_of(number)) for _ in range(3)] == [b"x"] * 3
    assert (len(api.requests), len(api.streams), len(second.streams)) == (1, 1, 4)


def test_sockets_of_a_killed_one_are_taken_over(api: ForwardingApi) -> None:
    with pod(hello(b"hi")) as number:
        with relay(api.access, port_of(number), port_of(number, "gone")) as process:
            process.send_signal(signal.SIGKILL)
            process.wait()
            assert Path(f"relay/{port_of(number).socket}").exists()
        with relay(api.access, port_of(number)):
            assert asked(port_of(number)) == b"hi"
            assert not Path(f"relay/{port_of(number, 'gone').socket}").exists()


def test_one_of_two_serves(api: ForwardingApi) -> None:
    with pod(hello(b"hi")) as number, relay(api.access, port_of(number)):
        terms = [sys.executable, "-m", "locallb.relay", "relay"]
        ended = subprocess.run(terms, capture_output=True, text=True, check=False, timeout=60)
        assert (ended.returncode, ended.stderr) == (1, "another process serves this relay already\n")
        assert asked(port_of(number)) == b"hi"
