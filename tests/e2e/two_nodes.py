"""A Service on two Nodes, and clients that see which Node answers."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tests.support.backends import ask, backends
from tests.support.manifests import node, port, service
from tests.support.stages import Stage, stage


@contextmanager
def two_nodes(proxies: str = "per-service") -> Iterator[tuple[Stage, str]]:
    """Return a stage with a Service on two Nodes, `a` and `b`, of which each answers with its name, and its address."""
    with stage() as play, backends() as make:
        number = make("a", "127.0.0.1").port
        make("b", "127.0.0.2", number)
        play.configure(proxies=proxies)
        play.write("s.yaml", node("a", "127.0.0.1"), node("b", "127.0.0.2"), service("web", port(8080, number)))
        play.up()
        yield play, play.addresses()["n/web"]


@contextmanager
def talking(address: str) -> Iterator[Callable[[str], str]]:
    """Hold a connection; gives what says something by it, and returns who answers."""
    with socket.create_connection((address, 8080), 10) as client, client.makefile("r") as lines:

        def log(text: str) -> str:
            client.sendall(f"{text}\n".encode())
            party, _, stated = lines.readline().partition(": ")
            assert stated == f"{text}\n"
            return party

        yield log


def answers(address: str) -> set[str]:
    return {ask(address, 8080).partition(":")[0] for _ in range(40)}
