"""What the tests against a real Envoy share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from locallb.envoy import Rendered
from tests.envoy.support import Envoy
from tests.envoy.traffic import Block, Server, servers

Start = Callable[[Rendered], Envoy]
Serve = Callable[..., list[Server]]


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
