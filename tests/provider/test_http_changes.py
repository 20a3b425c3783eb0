"""Routes, weights, certificates and backends change under clients that keep their connections: none of them notices."""

from __future__ import annotations

import dataclasses
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import grpc
import pytest
from msgspec.structs import replace

from locallb.envoy import render
from locallb.model.faults import Fault, RequestDelay
from locallb.model.http_routes import DirectResponse, Forward, GrpcMethod, HttpRoute, Match, PathKind, PathMatch, Target
from locallb.model.http_serving import (
    ANY,
    Chain,
    HttpBackends,
    HttpListener,
    HttpRoutes,
    Speaks,
    Termination,
    VirtualHost,
)
from locallb.model.identities import Protocol, ProxyName, UpstreamName
from locallb.model.objects import Discovery
from locallb.model.serving import HttpCheck, Proxy, Upstream
from tests.provider.certificates import KIND, inputs, reference, secret
from tests.support.certificates import Authority, Pair
from tests.support.http_traffic import Client, Echo, grpc_server, upstream
from tests.support.provider import Driver, Wanted, block
from tests.support.servers import QuietHandler, QuietServer, in_thread

pytestmark = pytest.mark.envoy
RATE = 50
"""Requests a second of each of the four clients."""


@dataclass(frozen=True)
class World:
    """What is served at one moment."""

    weights: tuple[int, int] = (1, 1)
    routes: int = 1
    """How many there are besides those that clients use."""
    backends: tuple[int, ...] = (0,)
    certificate: int = 0
    renamed: bool = False
    """The second upstream is another one."""
    delay: int = 0
    """Milliseconds by which requests are delayed."""


CHANGES: tuple[Callable[[World, int], World], ...] = (
    lambda world, n: dataclasses.replace(world, weights=(1 + n % 7, 1 + n % 5)),
    lambda world, n: dataclasses.replace(world, routes=1 + n % 3),
    lambda world, n: dataclasses.replace(world, backends=((0,), (1,), (0, 1))[n % 3]),
    lambda world, _: dataclasses.replace(world, certificate=1 - world.certificate),
    lambda world, _: dataclasses.replace(world, renamed=not world.renamed),
    lambda world, _: dataclasses.replace(world, delay=1 - world.delay),
)


@dataclass
class Rate:
    """A client at a constant rate; every failure is kept."""

    ask: Callable[[], object]
    failures: list[object] = field(default_factory=list)
    count: int = 0

    def run(self, stop: threading.Event) -> None:
        began = time.perf_counter()
        while not stop.wait(max(0.0, began + self.count / RATE - time.perf_counter())):
            self.count += 1
            try:
                if (answer := self.ask()) != "fine":
                    self.failures.append(answer)
            except (OSError, grpc.RpcError, ValueError) as error:
                self.failures.append(repr(error))


class Stack:
    """A proxy with HTTP on 8080 and HTTPS on 8443, changed as an engine changes it."""

    def __init__(self, driver: Driver, wanted: Wanted, directory: Path, upstreams: Callable[[World], Any]) -> None:
        self.driver, self.wanted, self.file, self.upstreams = driver, wanted, directory / "secret.json", upstreams
        self.authority = Authority(directory / "authority")
        self.pairs = [self.authority.sign("DNS:a.test") for _ in range(2)]
        self.world = World()
        self.certificate = self._certificate(self.pairs[0])
        self.config = driver.create("ProxyConfig", self._config(self.world))
        self.process = driver.create("EnvoyProcess", {**wanted.process, "bootstrap": self.config["bootstrap"]})
        self.proof = driver.create("Reachable", self._proof())

    def change(self, world: World) -> None:
        """Go over to another world, and prove it."""
        before, another = self.certificate, world.certificate != self.world.certificate
        if another:
            self.certificate = self._certificate(self.pairs[world.certificate])
        self.config = self.driver.update("ProxyConfig", self.config, self._config(world))
        self.proof = self.driver.update("Reachable", self.proof, self._proof())
        if another:
            self.driver.delete(KIND, before)
        self.world = world

    def _certificate(self, pair: Pair) -> dict[str, Any]:
        secret(pair, self.file)
        return self.driver.create(KIND, inputs(self.wanted, pair, self.file))

    def _config(self, world: World) -> Mapping[str, Any]:
        terminated = Termination((reference(self.pairs[world.certificate], self.file),))
        address, table = ip_address(self.wanted.address), _table(world)
        fault = Fault("2999-01-01T00:00:00Z", delay=RequestDelay(world.delay)) if world.delay else None
        http = (
            HttpListener(address, 8080, (Chain(table),), may_fail=True, fault=fault),
            HttpListener(address, 8443, (Chain(table, ("a.test",), terminated),), may_fail=True, fault=fault),
        )
        name = ProxyName("x")
        made = Proxy(name, self.wanted.proxy, Discovery.EDS, (), self.upstreams(world), http=http, may_serve_http=True)
        rendered = render(made)
        versions = {"lds": rendered.versions.lds, "cds": rendered.versions.cds}
        return {**self.wanted.config, "files": dict(rendered.files), "versions": versions}

    def _proof(self) -> Mapping[str, Any]:
        listeners = [f"{self.wanted.address}:{port}/TCP" for port in (8080, 8443)]
        given = {**self.wanted.reachable(self.process, probes=False), "listeners": listeners}
        return {**given, "versions": self.config["versions"]}


def _table(world: World) -> HttpRoutes:
    second = "renamed" if world.renamed else "second"
    targets = tuple(
        Target(UpstreamName(name), weight) for name, weight in zip(("first", second), world.weights, strict=True)
    )
    more = (
        HttpRoute(Match(PathMatch(PathKind.EXACT, f"/{n}")), DirectResponse(200, "more")) for n in range(world.routes)
    )
    calls = HttpRoute(Match(GrpcMethod("test.Echo")), Forward((Target(UpstreamName("grpc")),)))
    return HttpRoutes((VirtualHost((ANY,), (*more, calls, HttpRoute(Match(), Forward(targets)))),))


@pytest.fixture
def stack(driver: Driver, wanted: Wanted, tmp_path: Path) -> Iterator[Stack]:
    """Serve it, with two backends of HTTP and one of gRPC."""
    with ExitStack() as running:
        prefix = block()
        echoes = [running.enter_context(Echo(f"e{number}", f"{prefix}.{number}")) for number in (1, 2)]
        backend = running.enter_context(grpc_server(f"{prefix}.3"))

        def upstreams(world: World) -> tuple[Upstream, ...]:
            backends = [echoes[number] for number in world.backends]
            second = upstream("renamed" if world.renamed else "second", *echoes)
            calls = Upstream(UpstreamName("grpc"), Protocol.TCP, (backend,), http=HttpBackends(Speaks.HTTP2))
            return upstream("first", *backends), second, calls

        yield Stack(driver, wanted, tmp_path, upstreams)


def _status(client: Client) -> str:
    answer = client.ask()
    return "fine" if answer.status == 200 else f"{answer.status} {answer.headers} {answer.body}"


def _nobody_notices(stack: Stack, changes: int) -> None:
    """Change it so often; each of the clients keeps its one connection and is answered every time."""
    address, trusted = stack.wanted.address, stack.authority.own.chain
    clients = Client(address), Client(address), Client(address, 8443, str(trusted))
    channel = grpc.insecure_channel(f"{address}:8080")
    call = channel.unary_unary("/test.Echo/Say", None, None)
    requires: list[Callable[[], object]] = [
        *(partial(_status, client) for client in clients),
        lambda: call(b"fine", timeout=5).decode(),
    ]
    rates, stop = [Rate(ask) for ask in requires], threading.Event()
    threads = [threading.Thread(target=rate.run, args=(stop,)) for rate in rates]
    for thread in threads:
        thread.start()
    listeners = stack.config["files"]["lds.json"]
    try:
        for number in range(changes):
            stack.change(CHANGES[number % len(CHANGES)](stack.world, number))
    finally:
        stop.set()
        for thread in threads:
            thread.join()
        for each in (*clients, channel):
            each.close()
    assert [rate.failures for rate in rates] == [[]] * len(rates)
    assert [client.made for client in clients] == [1, 1, 1]
    assert all(rate.count for rate in rates)
    assert stack.config["files"]["lds.json"] == listeners
    assert json.loads(json.dumps(stack.proof))["versions"] == stack.config["versions"]


def test_http_changes_lose_no_request(stack: Stack) -> None:
    """Each kind of change, several times."""
    _nobody_notices(stack, 20)


def test_a_delayed_request_comes_to_a_backend_that_leaves_the_routes_meanwhile(stack: Stack) -> None:
    """Envoy chooses the cluster before the delay, and answers 500 where it is gone afterwards."""
    stack.change(dataclasses.replace(stack.world, delay=1000, weights=(0, 1)))
    reported: list[str] = []
    with ExitStack() as running:
        client = Client(stack.wanted.address)
        running.callback(client.close)
        assert _status(client) == "fine"
        asking = threading.Thread(target=lambda: reported.append(_status(client)))
        asking.start()
        running.callback(asking.join)
        stack.change(dataclasses.replace(stack.world, renamed=True))
    assert reported == ["fine"]


class _Late(QuietHandler):
    """A Node's health port that takes its time."""

    def do_GET(self) -> None:
        time.sleep(0.2)
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()


def test_routes_lead_to_another_service_once_its_backends_were_checked(stack: Stack) -> None:
    """Envoy answers 500 for a cluster before that, which takes a quarter of a second where a Node is down."""
    upstreams = stack.upstreams
    _, second, _ = upstreams(stack.world)
    with ExitStack() as running:
        node = QuietServer((str(second.backends[0].address), 0), _Late)
        running.enter_context(in_thread(node))

        def checked(world: World) -> tuple[Upstream, ...]:
            first, second, calls = upstreams(world)
            renamed = replace(second, backends=second.backends[:1], health=HttpCheck(node.server_address[1]))
            return first, renamed if world.renamed else second, calls

        stack.upstreams = checked
        client, stop = Client(stack.wanted.address), threading.Event()
        running.callback(client.close)
        rate = Rate(partial(_status, client))
        asking = threading.Thread(target=rate.run, args=(stop,))
        asking.start()
        try:
            stack.change(dataclasses.replace(stack.world, renamed=True, weights=(0, 1)))
        finally:
            stop.set()
            asking.join()
        assert _status(client) == "fine"
    assert rate.failures == []


@pytest.mark.slow
def test_500_http_changes_lose_no_request(stack: Stack) -> None:
    """At 200 requests a second."""
    _nobody_notices(stack, 500)
