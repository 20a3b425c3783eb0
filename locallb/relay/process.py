"""The process of a relay: `python -m locallb.relay DIRECTORY`, which `relay.json` there tells what to serve.

It listens on a socket for each port of a pod, and on `control`: whoever connects there makes it read the file again,
and gets the digest of what it serves then. It ends at SIGTERM, and goes on without its starter. Credentials are read
from the kubeconfig for each connection to the API, never written. Not here: who starts it.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
import sys
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from socket import AF_UNIX, SOCK_STREAM, socket

from locallb.kubernetes.api.upgrade import upgraded
from locallb.model.errors import ClientError
from locallb.model.relays import RelayedPort
from locallb.relay import directory as places
from locallb.relay.carriers import readable
from locallb.relay.directory import CONTROL, MARK, VERSION_MARK, Served
from locallb.relay.service import Service
from locallb.safe_files import open_lock, try_lock

_BACKLOG = 512
_END = 2.0
"""Seconds that open connections get when it ends."""
_EXPIRE = 10.0
"""Seconds between looks at connections that wait for clients."""
_PAUSE = 0.1
"""Seconds after which it accepts again where descriptors lack."""


class Relay:
    """The sockets of one directory, which is the working directory: paths of any length fit."""

    def __init__(self, served: Served) -> None:
        self.served = served
        self._service = Service(partial(upgraded, served.access), _report)
        self._accepting: dict[RelayedPort, tuple[socket, asyncio.Task[None]]] = {}
        self._carrying: set[asyncio.Task[None]] = set()

    def apply(self, served: Served) -> None:
        """Listen for these ports and no others. Open connections go on."""
        if served.access != self.served.access:
            self._service.connect_by(partial(upgraded, served.access))
        wanted = set(served.ports)
        for port in self._accepting.keys() - wanted:
            self._stop(port)
        self._service.serve(served.ports)
        for port in wanted - self._accepting.keys():
            listening = _listening(port.socket)
            self._accepting[port] = listening, asyncio.create_task(self._accept(listening, port))
        self.served = served

    def _stop(self, port: RelayedPort) -> None:
        listening, task = self._accepting.pop(port)
        task.cancel()
        listening.close()
        _remove(port.socket)

    async def _accept(self, listening: socket, port: RelayedPort) -> None:
        while True:
            await readable(listening)  # before a place is taken: most sockets have no client
            await self._service.reserve()
            try:
                connection, _ = listening.accept()
            except OSError:
                self._service.release()
                await asyncio.sleep(_PAUSE)
                continue
            connection.setblocking(False)
            carried = asyncio.create_task(self._service.carry(connection, port))
            self._carrying.add(carried)
            carried.add_done_callback(self._carrying.discard)

    async def control(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Read again what to serve, and answer what is served then."""
        del reader
        problem = ""
        try:
            self.apply(places.read(Path()))
        except (ClientError, OSError) as error:
            problem = str(error)
        answer = {"version": self.served.version, "problem": problem}
        with suppress(OSError):
            writer.write(json.dumps(answer).encode())
            await writer.drain()
        writer.close()

    async def run(self) -> None:
        """Serve until SIGTERM."""
        stopped, loop = asyncio.Event(), asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stopped.set)
        self.apply(self.served)
        _remove(CONTROL)
        control = await asyncio.start_unix_server(self.control, CONTROL)
        gc.freeze()
        expiring = asyncio.create_task(self._expire())
        await stopped.wait()
        _remove(CONTROL)
        control.close()
        expiring.cancel()
        await self.close()

    async def close(self) -> None:
        """Listen no more, and let open connections end for a moment."""
        for port in [*self._accepting]:
            self._stop(port)
        if self._carrying:
            await asyncio.wait(self._carrying, timeout=_END)
        self._service.close()

    async def _expire(self) -> None:
        while True:
            await asyncio.sleep(_EXPIRE)
            self._service.expire()


def _listening(name: str) -> socket:
    """Listen on a socket of this directory, in place of one that a process of before has left."""
    _remove(name)
    listening = socket(AF_UNIX, SOCK_STREAM)
    listening.setblocking(False)
    listening.bind(name)
    listening.listen(_BACKLOG)
    return listening


def _remove(name: str) -> None:
    Path(name).unlink(missing_ok=True)


def _report(sentence: str) -> None:
    with suppress(OSError):  # the log is bounded
        sys.stderr.write(f"{sentence}\n")
        sys.stderr.flush()


def _sweep(ports: Iterable[RelayedPort]) -> None:
    """Remove sockets of processes of before."""
    names = {port.socket for port in ports}
    for path in Path().iterdir():
        if path.is_socket() and path.name not in names:
            path.unlink(missing_ok=True)


def main() -> int:
    """Serve the directory that is named; one process at a time does."""
    for mark in (MARK, VERSION_MARK):
        os.environ.pop(mark, None)  # an exec plugin is no relay, and isn't ended like one
    try:
        os.chdir(sys.argv[1])
        if not try_lock(open_lock(Path(places.LOCK))):
            sys.stderr.write("another process serves this relay already\n")
            return 1
        served = places.read(Path())
        _sweep(served.ports)
        asyncio.run(_run(served))
    except (ClientError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


async def _run(served: Served) -> None:
    await Relay(served).run()
