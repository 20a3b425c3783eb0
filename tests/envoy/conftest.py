"""What the tests against a real Envoy share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from locallb.envoy import Rendered
from locallb.model.http_routes import HttpRoute
from locallb.model.http_serving import Chain, HttpRoutes, VirtualHost
from locallb.model.objects import Discovery
from tests.support.envoy import Envoy
from tests.support.envoy_traffic import Block, Server, servers
from tests.support.http_traffic import Client, Echo, rendering, upstream

Start = Callable[[Rendered], Envoy]
Serve = Callable[..., list[Server]]
ServeHttp = Callable[..., Client]


@pytest.fixture
def block() -> Block:
    """Return a test loopback addresses of its own."""
    return Block()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start Envoys, wait until each is active, and end them after the test."""
    with ExitStack() as stack:
        count = iter(range(100))

        def run(rendered: Rendered) -> Envoy:
            directory = tmp_path / str(next(count))
            directory.mkdir()
            envoy = stack.enter_context(Envoy(directory, rendered))
            envoy.wait(rendered)
            return envoy

        yield run


@pytest.fixture
def nodes(block: Block) -> Iterator[Serve]:
    """Start servers by their one-letter names (`nodes("AB", first=1)`), and end them after the test."""
    with ExitStack() as stack:

        def run(names: str, first: int = 1, delay: float = 0) -> list[Server]:
            return [stack.enter_context(server) for server in servers(names, block, first, delay=delay)]

        yield run


@pytest.fixture
def echoes(block: Block) -> Iterator[dict[str, Echo]]:
    with ExitStack() as stack:
        yield {name: stack.enter_context(Echo(name, block[number])) for number, name in ((1, "a"), (2, "b"))}


@pytest.fixture
def serve(start: Start, block: Block, echoes: dict[str, Echo]) -> Iterator[ServeHttp]:
    """Serve routes, or hosts with routes: upstreams are web (backend a), other (b), both, and empty."""
    with ExitStack() as stack:

        def run(*routes: HttpRoute | VirtualHost, discovery: Discovery = Discovery.EDS) -> Client:
            hosts = tuple(each for each in routes if isinstance(each, VirtualHost))
            plain = [each for each in routes if isinstance(each, HttpRoute)]
            a, b = echoes.values()
            upstreams = [upstream("web", a), upstream("other", b), upstream("both", a, b), upstream("empty")]
            start(rendering(block[9], [Chain(HttpRoutes(hosts))] if hosts else plain, upstreams, discovery))
            client = Client(block[9])
            stack.callback(client.close)
            return client

        yield run
