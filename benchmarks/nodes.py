"""What answers on NodePorts: a small server an address, in a process of its own, one of them able to fall silent.

    python -m benchmarks.nodes ADDRESS FIRST COUNT [http]

serves so many ports from the first one on. Whatever comes is answered with the address, by HTTP where that is said.
Not here: Node objects.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.requests import ask

FIRST, COUNT = 31000, 64
"""NodePorts that are served; inside Kubernetes' default range."""
HOST, FAR = "198.18.77.1", "198.18.77.2"
"""Both ends of the way to the Node that can fall silent, of the range that RFC 2544 gives to benchmarks."""
_SPACE, _NEAR_LINK = "locallb-bench", "llb-bench"


class _Answer(asyncio.Protocol):
    """Answers each connection once, and closes."""

    def __init__(self, name: bytes) -> None:
        self._name = name
        self._transport: asyncio.BaseTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        del data
        if isinstance(self._transport, asyncio.Transport):
            self._transport.write(self._name)
            self._transport.close()


async def serve(address: str, first: int, count: int, *, http: bool = False) -> None:
    loop = asyncio.get_running_loop()
    head = f"HTTP/1.1 200 OK\r\ncontent-length: {len(address)}\r\nconnection: close\r\n\r\n" if http else ""
    answer = f"{head}{address}".encode()
    for port in range(first, first + count):
        await loop.create_server(lambda: _Answer(answer), address, port, backlog=512)
    await asyncio.Event().wait()


@contextmanager
def served(address: str, *before: str, http: bool = False) -> Iterator[None]:
    """Serve the NodePorts of an address; `before` are words in front of the command."""
    how = ["http"] if http else []
    command = [*before, sys.executable, "-m", "benchmarks.nodes", address, str(FIRST), str(COUNT), *how]
    process = subprocess.Popen(command, cwd=Path(__file__).resolve().parents[1])
    try:
        deadline = time.monotonic() + 20
        while not ask(address, FIRST + COUNT - 1):
            if process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"nothing answers at {address}: are the ports from {FIRST} on in use?")
            time.sleep(0.02)
        yield
    finally:
        process.kill()
        process.wait()


class FarNode:
    """A Node in a network namespace of its own, which can fall silent: packets reach it, and none comes back."""

    address = FAR

    def silence(self) -> None:
        """Answer nothing any more, as a machine that lost its power."""
        _ip("-n", _SPACE, "route", "add", "blackhole", f"{HOST}/32")

    def revive(self) -> None:
        _ip("-n", _SPACE, "route", "del", "blackhole", f"{HOST}/32")


def can_be_far() -> bool:
    """Return whether this user may make network namespaces."""
    return os.geteuid() == 0 and bool(_tool())


@contextmanager
def far_node() -> Iterator[FarNode]:
    """Make a Node that can fall silent, with what answers on its NodePorts. Only root can."""
    _forget()
    _ip("netns", "add", _SPACE)
    try:
        _ip("link", "add", _NEAR_LINK, "type", "veth", "peer", "name", "eth0", "netns", _SPACE)
        _ip("addr", "add", f"{HOST}/30", "dev", _NEAR_LINK)
        _ip("link", "set", _NEAR_LINK, "up")
        _ip("-n", _SPACE, "addr", "add", f"{FAR}/30", "dev", "eth0")
        _ip("-n", _SPACE, "link", "set", "eth0", "up")
        with served(FAR, _tool(), "netns", "exec", _SPACE):
            yield FarNode()
    finally:
        _forget()


def _forget() -> None:
    """Remove the namespace, and the link with it, also one that a killed run left."""
    for terms in (("netns", "del", _SPACE), ("link", "del", _NEAR_LINK)):
        subprocess.run([_tool(), *terms], check=False, capture_output=True)


def _ip(*terms: str) -> None:
    subprocess.run([_tool(), *terms], check=True)


def _tool() -> str:
    return shutil.which("ip") or shutil.which("ip", path="/usr/sbin:/sbin") or ""


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), http=sys.argv[4:] == ["http"]))
