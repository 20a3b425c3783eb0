"""Requests to wherever a load balancer says: single ones, and an open loop at a constant rate.

In the open loop a request that hangs holds up no other one, so a dead backend costs as many requests as it would cost
independent clients. Each request is a new connection.
"""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

RATE = 200
"""Requests a second."""
TIMEOUT = 3.0
"""Seconds after which a request has failed."""
LONGEST = 30.0
"""Seconds that anything may take to come true."""
REQUEST = b"GET / HTTP/1.0\r\n\r\n"


def ask(address: str, port: int, timeout: float = TIMEOUT) -> str:
    """Make one request. Gives what came first, or nothing if it failed."""
    try:
        with socket.create_connection((address, port), timeout=timeout) as client:
            client.sendall(REQUEST)
            return client.recv(64).decode(errors="replace")
    except OSError:
        return ""


def connects(address: str, port: int) -> bool:
    """Return whether a connection is accepted."""
    try:
        socket.create_connection((address, port), timeout=TIMEOUT).close()
    except OSError:
        return False
    return True


def until(fact: Callable[[], object], what: str, longest: float = LONGEST) -> float:
    """Wait until something is true. Gives when it was (perf_counter). Raises TimeoutError."""
    give_up = time.perf_counter() + longest
    while not fact():
        if time.perf_counter() > give_up:
            raise TimeoutError(f"{what} didn't come true within {longest:g} s")
        time.sleep(0.001)
    return time.perf_counter()


@dataclass(frozen=True, slots=True)
class Request:
    """One request: when it began and ended (perf_counter), and what came; nothing if it failed."""

    began: float
    ended: float
    answer: str
    client: str = ""
    """Where it came from, as proxies say it; empty if it wasn't let in."""


class Load:
    """Requests at a constant rate while the block runs; at its end the last ones are waited for."""

    def __init__(self, address: str, port: int, rate: int = RATE) -> None:
        self.requests: list[Request] = []
        self._place = address, port
        self._rate = rate
        self._stop = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))

    def __enter__(self) -> Self:
        self._thread.start()
        time.sleep(0.1)
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    @property
    def failed(self) -> list[Request]:
        return [request for request in tuple(self.requests) if not request.answer]

    async def _run(self) -> None:
        began, number = time.perf_counter(), 0
        async with asyncio.TaskGroup() as group:
            while not self._stop.is_set():
                group.create_task(self._one())
                number += 1
                await asyncio.sleep(max(0.0, began + number / self._rate - time.perf_counter()))

    async def _one(self) -> None:
        began, answer, client = time.perf_counter(), "", ""
        try:
            async with asyncio.timeout(TIMEOUT):
                reader, writer = await asyncio.open_connection(*self._place)
                client = ":".join(map(str, writer.get_extra_info("sockname")[:2]))
                try:
                    answer = await self.exchange(reader, writer)
                finally:
                    writer.close()
        except OSError:  # TimeoutError is one
            pass
        self.requests.append(Request(began, time.perf_counter(), answer, client))

    async def exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> str:
        """Ask on a connection. Gives what came first; nothing if that is a failure."""
        writer.write(REQUEST)
        return (await reader.read(64)).decode(errors="replace")
