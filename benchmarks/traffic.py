"""Traffic for benchmarks: tiny backends, single requests, requests at a constant rate. On 127.0.0.0/8 only."""

from __future__ import annotations

import os
import socket
import threading
import time
from contextlib import closing
from typing import Self

NET = os.environ.get("LOCALLB_BENCH_NET", "127.88")
"""The first two bytes of every address, so that two benchmarks can run at once."""
ADDRESS, PORT, ADDED = f"{NET}.0.1", 8080, 8081
OLD, NEW = (f"{NET}.1.1", 18080), (f"{NET}.1.2", 18080)
RATE = 200
"""Requests a second while something changes, each a new connection."""
TIMEOUT = 10.0


def ask(port: int) -> str:
    """Make one request. Returns the answering backend's address, or empty when it failed."""
    try:
        with socket.create_connection((ADDRESS, port), timeout=TIMEOUT) as client:
            client.sendall(b"?")
            return client.recv(64).decode()
    except OSError:
        return ""


def until(answer: str, port: int) -> float:
    """Ask until `answer` comes. Returns when it came (perf_counter)."""
    give_up = time.perf_counter() + TIMEOUT
    while ask(port) != answer:
        if time.perf_counter() > give_up:
            raise SystemExit(f"{ADDRESS}:{port} didn't answer {answer} within {TIMEOUT:g} s")
    return time.perf_counter()


class Load:
    """Requests at a constant rate, and how many of them failed."""

    def __init__(self) -> None:
        self.requests = self.failed = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(1 / RATE):
            self.requests += 1
            self.failed += not ask(PORT)


def backend(address: tuple[str, int]) -> None:
    """Answer every connection with the own address: a process of its own, out of the way of the clock."""
    with socket.create_server(address, backlog=512) as server:
        while True:
            stream, _ = server.accept()
            with closing(stream):
                if stream.recv(1):
                    stream.sendall(address[0].encode())
