"""Five hundred changes of a Gateway's routes, weights, certificates and endpoints, and not one request that fails."""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import grpc
import pytest

from tests.support.certificates import Authority, Pair
from tests.support.gateway_clients import address_of, service
from tests.support.gateway_objects import JsonObject, backend, gateway, gateway_class, listener, route, rule
from tests.support.http_traffic import Echo, grpc_server
from tests.support.manifests import node
from tests.support.stages import Stage
from tests.support.waiting import TIMEOUT
from tests.support.watching import Watch, eventually, watching

pytestmark = [pytest.mark.envoy, pytest.mark.slow]

CHANGES, SEEN_EVERY = 500, 20
PAUSE = 0.04
"""Seconds between changes, of which the loop may take several at once; every so many it is waited for."""
RATE = 40
"""Requests a second of each client; there are five, so 200 together."""
Ask = Callable[[], str]


@dataclass
class Clients:
    """Ask at a constant rate, each in a thread of its own, and note who answered and what went wrong.

    Requests that a slow answer delayed are sent as soon as it came.
    """

    answers: dict[str, Counter[str]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def asking(self, **clients: Ask) -> Iterator[Clients]:
        self.answers = {name: Counter() for name in clients}
        threads = [threading.Thread(target=self._run, args=item) for item in clients.items()]
        for thread in threads:
            thread.start()
        try:
            yield self
        finally:
            self._stop.set()
            for thread in threads:
                thread.join()

    def _run(self, name: str, ask: Ask) -> None:
        due = time.monotonic()
        while not self._stop.wait(max(0.0, due - time.monotonic())):
            due += 1 / RATE
            try:
                self.answers[name][ask()] += 1
            except (OSError, http.client.HTTPException, grpc.RpcError) as error:
                self.failures.append(f"{name}: {error!r}")


@dataclass
class Places:
    """Backends that answer at NodePorts: of the Service `one` the first two take turns, of `calls` both."""

    echoes: tuple[Echo, Echo, Echo]
    calls: tuple[int, int]

    @property
    def ports(self) -> tuple[int, ...]:
        """The NodePorts of those that answer requests."""
        return tuple(echo.backend.port for echo in self.echoes)


@dataclass
class World:
    """What the manifests say, changed in one place after another."""

    play: Stage
    places: Places
    pairs: tuple[Pair, Pair]

    def write_all(self) -> None:
        certificate = {"certificateRefs": [{"name": "cert"}]}
        https = listener("https", 8443, "HTTPS", hostname="a.test", tls=certificate)
        made = gateway(listener(port=8080), https)
        self.play.write("cluster.yaml", node(), service("two", self.places.ports[2]), gateway_class(), made)
        for number in range(4):
            self.change(number)

    def change(self, number: int) -> None:
        """Make the change of that number: of weights and a filter, calls, a certificate, or endpoints."""
        turn = number // 4 % 2
        match number % 4:
            case 0:
                self.play.write("route.yaml", web_route(number), calls_route(number))
            case 1:
                self.play.write("one.yaml", service("one", self.places.ports[turn]))
            case 2:
                self.play.write("secret.yaml", secret(self.pairs[turn]))
            case _:
                self.play.write("calls.yaml", service("calls", self.places.calls[turn]))


def web_route(number: int) -> JsonObject:
    """Make the route of requests: its weights and what it tells backends differ from number to number."""
    reported = {"set": [{"name": "x-number", "value": str(number)}]}
    filters = [{"type": "RequestHeaderModifier", "requestHeaderModifier": reported}]
    shares = [backend("one", weight=1 + number % 3), backend("two")]
    return route(rule("/", backends=shares, filters=filters), name="web", hostnames=["a.test"])


def calls_route(number: int) -> JsonObject:
    """Make the route of calls: other calls have rules of their own now and again."""
    others = {"matches": [{"method": {"service": f"other{number}"}}], "backendRefs": [backend("two")]}
    return route({"backendRefs": [backend("calls")]}, others, name="calls", kind="GRPCRoute", hostnames=["calls.test"])


def secret(pair: Pair) -> JsonObject:
    """Write the Secret that the Gateway names."""
    files = {"tls.crt": pair.chain, "tls.key": pair.key}
    data = {name: base64.b64encode(path.read_bytes()).decode() for name, path in files.items()}
    metadata = {"name": "cert", "namespace": "shop"}
    return {"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls", "metadata": metadata, "data": data}


def requested(connection: http.client.HTTPConnection) -> tuple[str, str]:
    """Ask on a connection. Gives status and name of the backend, and the number that the route told it."""
    connection.request("GET", "/", headers={"host": "a.test"})
    answer = connection.getresponse()
    text = answer.read()
    if answer.status != http.client.OK:
        return f"{answer.status} {text.decode()}", ""
    observed = json.loads(text)
    return f"200 {observed['by']}", observed["headers"].get("x-number", "")


class Connections:
    """How clients come to the Gateway."""

    def __init__(self, address: str, authority: Authority) -> None:
        self._address = address
        self._trusted = ssl.create_default_context(cafile=str(authority.own.chain))
        self.certificates: set[bytes] = set()
        """Those that clients were shown."""

    def plain(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(self._address, 8080, timeout=TIMEOUT)

    def secure(self) -> http.client.HTTPConnection:
        """Make a connection by TLS, whose client says the name of the host."""
        connection = self.plain()
        connection.port = 8443
        connection.connect()
        sock = self._trusted.wrap_socket(connection.sock, server_hostname="a.test")
        self.certificates.add(sock.getpeercert(binary_form=True) or b"")
        connection.sock = sock
        return connection

    def call(self, channel: grpc.Channel) -> str:
        stated: bytes = channel.unary_unary("/test.Echo/Say", None, None)(b"hello", timeout=TIMEOUT)
        return stated.decode()

    def channel(self) -> grpc.Channel:
        """Prepare a connection by HTTP/2 of a client that hides no failure by trying again."""
        options = [("grpc.default_authority", "calls.test"), ("grpc.enable_retries", 0), ("grpc.enable_http_proxy", 0)]
        return grpc.insecure_channel(f"{self._address}:8080", options)


def on_new(connect: Callable[[], http.client.HTTPConnection]) -> str:
    with closing(connect()) as connection:
        return requested(connection)[0]


def answered(connect: Callable[[], http.client.HTTPConnection]) -> bool:
    """Return whether a new connection is answered by a backend."""
    return on_new(connect).startswith("200 ")


def is_reported(connections: Connections, number: int) -> bool:
    """Return whether the route of that number is in effect."""
    with closing(connections.plain()) as connection:
        return requested(connection)[1] == str(number)


@pytest.fixture
def places() -> Iterator[Places]:
    """Run backends: two for the Service `one`, one for `two`, two for calls."""
    with ExitStack() as stack:
        first, second, two = (stack.enter_context(Echo(name, "127.0.0.1")) for name in ("one", "one", "two"))
        calls = [stack.enter_context(grpc_server("127.0.0.1")) for _ in range(2)]
        yield Places((first, second, two), (calls[0].port, calls[1].port))


def follow(world: World, connections: Connections, watch: Watch) -> None:
    """Make all changes, and wait now and again until they are in effect."""
    pause = threading.Event()
    for number in range(4, CHANGES + 4):
        world.change(number)
        pause.wait(PAUSE)
        if number % SEEN_EVERY == 0:
            eventually(partial(is_reported, connections, number), watch)


def test_five_hundred_changes_cost_no_request_and_no_connection(play: Stage, places: Places, tmp_path: Path) -> None:
    """By HTTP/1.1, with TLS and without, on kept connections and new ones, and by HTTP/2: each request is answered."""
    authority = Authority(tmp_path / "authority")
    world = World(play, places, (authority.sign("DNS:a.test"), authority.sign("DNS:a.test")))
    world.write_all()
    with watching(play) as watch, ExitStack() as stack:
        eventually(lambda: play.run("status", "--json").json[0]["state"] == "serving", watch)
        connections = Connections(address_of(play), authority)
        channel = stack.enter_context(connections.channel())
        for connect in (connections.plain, connections.secure):
            eventually(partial(answered, connect), watch)
        retained = [stack.enter_context(closing(make())) for make in (connections.plain, connections.secure)]
        assert {requested(connection)[0] for connection in retained} <= {"200 one", "200 two"}
        grpc.channel_ready_future(channel).result(TIMEOUT)
        assert connections.call(channel) == "hello"
        sockets, before = [connection.sock for connection in retained], play.pids()
        with Clients().asking(
            new=partial(on_new, connections.plain),
            new_by_tls=partial(on_new, connections.secure),
            retained=lambda: requested(retained[0])[0],
            kept_by_tls=lambda: requested(retained[1])[0],
            by_http2=lambda: connections.call(channel),
        ) as clients:
            follow(world, connections, watch)
        assert clients.failures == []
        answers = {name: set(counted) for name, counted in clients.answers.items()}
        expected = {name: {"200 one", "200 two"} for name in answers}
        assert answers == {**expected, "by_http2": {"hello"}}
        assert len(connections.certificates) == len(world.pairs)
        assert all(echo.requested for echo in places.echoes)
        assert [connection.sock for connection in retained] == sockets
        assert play.pids() == before
