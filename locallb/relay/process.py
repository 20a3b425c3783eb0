"""The process of a relay: `python -m locallb.relay DIRECTORY`, which `relay.json` there tells what to serve.

It listens on a socket for each port of a pod, and on `control`: whoever connects there makes it read the file again,
and gets the digest of what it serves then. It ends at SIGTERM, and goes on without its starter. Credentials are read
from the kubeconfig for each connection to the API, never written.

A client goes to the pod of the socket that it came to, and to others of the same group while none has taken it. So a
pod that goes costs its clients a moment, and only connections that it had accepted end. Connections that have carried
a client are kept for the next one. Not here: who starts it, and what is spoken to the API (`carriers`).
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from socket import AF_UNIX, MSG_PEEK, SOCK_STREAM, socket
from typing import TYPE_CHECKING

from msgspec import Struct

from locallb.kubernetes.api.servers import KubeError
from locallb.model.errors import ClientError, reported
from locallb.model.relays import RelayedPort
from locallb.model.texts import printable
from locallb.relay import relay_directory
from locallb.relay.carriers import Carrier, CarrierError, Client, readable
from locallb.relay.relay_directory import CONTROL, MARK, VERSION_MARK, Served
from locallb.safe_files import open_lock, try_lock

if TYPE_CHECKING:
    from locallb.kubernetes.api.upgrade import Upgraded
    from locallb.model.snapshot import Access

MAX_CLIENTS = 2000
"""Connections of clients at a time; others wait in the queues of their sockets."""
ATTEMPTS = 4
"""Pods that are tried for a client."""
_MAX_WAITING = 32
"""Connections of a pod that wait for clients."""
_MAX_IDLE = 60.0
"""Seconds that they wait."""
_AT_ONCE = 16
"""Requests to the API at a time."""
_FIRST_BYTES = 0.005
"""Seconds in which Envoy's health checks have closed their connections: they are no clients."""
_AVOIDED = 2.0
"""Seconds for which a pod that has failed is tried after the others."""
_REPORT_EVERY = 10.0
"""Seconds after which a failure of the same pod is reported again."""


class _Waiting(Struct):
    """A connection that waits for a client."""

    carrier: Carrier
    until: float


class Service:
    """Carries clients to pods; for one event loop. `open_upgraded` asks the API, in a thread, for a connection."""

    def __init__(
        self, open_upgraded: Callable[[str, str], Upgraded], report: Callable[[str], object] = lambda _: None
    ) -> None:
        self._open, self._report = open_upgraded, report
        self._threads = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="upgrade")
        self._places = asyncio.Semaphore(MAX_CLIENTS)
        self._groups: dict[str, tuple[RelayedPort, ...]] = {}
        self._waiting: dict[tuple[str, str], list[_Waiting]] = {}
        self._failed: dict[RelayedPort, float] = {}
        self._reported: dict[RelayedPort, float] = {}

    def serve(self, ports: Iterable[RelayedPort]) -> None:
        """Take over which ports there are; connections to other pods that wait for clients are closed."""
        groups: dict[str, list[RelayedPort]] = {}
        for port in ports:
            groups.setdefault(port.group, []).append(port)
        self._groups = {group: tuple(several) for group, several in groups.items()}
        existing = {port for several in groups.values() for port in several}
        self._failed = {port: at for port, at in self._failed.items() if port in existing}
        self._reported = {port: at for port, at in self._reported.items() if port in existing}
        pods = {(port.namespace, port.pod) for port in existing}
        for pod in [*self._waiting]:
            if pod not in pods:
                self._close(self._waiting.pop(pod))

    def connect_by(self, open_upgraded: Callable[[str, str], Upgraded]) -> None:
        """Ask the API in another way from now on; clients that are carried stay."""
        self._open = open_upgraded
        self._close_waiting()

    def close(self) -> None:
        self._close_waiting()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _close_waiting(self) -> None:
        for waiting in self._waiting.values():
            self._close(waiting)
        self._waiting = {}

    def _close(self, waiting: Iterable[_Waiting]) -> None:
        for each in waiting:
            each.carrier.close()

    def release(self) -> None:
        self._places.release()

    async def reserve(self) -> None:
        """Wait for a place for one more client."""
        await self._places.acquire()

    async def carry(self, connection: socket, port: RelayedPort) -> None:
        """Carry a client that has a place, until it or the pod ends."""
        try:
            if await _has_begun(connection):
                await self._carry(Client(connection), port)
        except OSError:  # the client's own
            pass
        finally:
            self._places.release()
            connection.close()

    async def _carry(self, client: Client, port: RelayedPort) -> None:
        for candidate in self._candidates(port):
            try:
                await self._try(client, candidate)
            except (CarrierError, KubeError) as error:
                self._failed[candidate] = time.monotonic()
                self._note_failure(candidate, str(error))
            else:
                self._failed.pop(candidate, None)
                return
            if client.unanswered is None:
                return

    def _candidates(self, port: RelayedPort) -> Iterator[RelayedPort]:
        """Return the pod itself and others of its group, those that failed a moment ago last."""
        recent = time.monotonic() - _AVOIDED
        others = [each for each in self._groups.get(port.group, ()) if each != port]
        every = sorted((port, *others), key=lambda each: self._failed.get(each, 0.0) > recent)
        yield from every[:ATTEMPTS]

    async def _try(self, client: Client, port: RelayedPort) -> None:
        """Carry a client to one pod. Raises CarrierError, KubeError.

        A connection that waited may have ended, or lead to a former pod of this name: then a new one is made.
        """
        if carrier := self._take(port):
            try:
                return await self._use(carrier, self._open, client, port)
            except CarrierError:
                self._close(self._waiting.pop((port.namespace, port.pod), ()))
                if client.unanswered is None:
                    raise
        loop, way = asyncio.get_running_loop(), self._open
        upgraded = await loop.run_in_executor(self._threads, way, port.namespace, port.pod)
        return await self._use(Carrier(upgraded), way, client, port)

    async def _use(self, carrier: Carrier, way: object, client: Client, port: RelayedPort) -> None:
        """Carry a client by a connection that was made in this way. Raises CarrierError."""
        reusable = False
        try:
            await carrier.open(port.port)
            reusable = await carrier.carry(client)
        finally:
            if reusable and way is self._open:
                self._keep(port, carrier)
            else:
                carrier.close()

    def _take(self, port: RelayedPort) -> Carrier | None:
        waiting = self._waiting.get((port.namespace, port.pod), [])
        while waiting:
            each = waiting.pop()
            if each.until > time.monotonic() and each.carrier.is_usable:
                return each.carrier
            each.carrier.close()
        return None

    def _keep(self, port: RelayedPort, carrier: Carrier) -> None:
        if not any(port in group for group in self._groups.values()):
            carrier.close()
            return
        waiting = self._waiting.setdefault((port.namespace, port.pod), [])
        waiting.append(_Waiting(carrier, time.monotonic() + _MAX_IDLE))
        while len(waiting) > _MAX_WAITING:
            waiting.pop(0).carrier.close()

    def expire(self) -> None:
        """Close what waited too long."""
        now = time.monotonic()
        for pod, waiting in self._waiting.items():
            self._close(each for each in waiting if each.until <= now)
            self._waiting[pod] = [each for each in waiting if each.until > now]

    def _note_failure(self, port: RelayedPort, why: str) -> None:
        now = time.monotonic()
        if self._reported.get(port, 0.0) + _REPORT_EVERY <= now:
            self._reported[port] = now
            self._report(f"Pod {port.namespace}/{port.pod} port {port.port}: {printable(why)}")


async def _has_begun(connection: socket) -> bool:
    """Return whether a client sends something, or waits for the pod's first word; False if it has gone already."""
    with suppress(BlockingIOError):
        return bool(connection.recv(1, MSG_PEEK))
    with suppress(TimeoutError):
        async with asyncio.timeout(_FIRST_BYTES):
            await readable(connection)
            return bool(connection.recv(1, MSG_PEEK))
    return True


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
        self._service = Service(partial(_upgraded, served.access), _report)
        self._accepting: dict[RelayedPort, tuple[socket, asyncio.Task[None]]] = {}
        self._carrying: set[asyncio.Task[None]] = set()

    def apply(self, served: Served) -> None:
        """Listen for these ports and no others. Open connections go on."""
        if served.access != self.served.access:
            self._service.connect_by(partial(_upgraded, served.access))
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
            self.apply(relay_directory.read(Path()))
        except (ClientError, OSError) as error:
            problem = _sentence(error)
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
        await loop.run_in_executor(None, _load_client)
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


def _load_client() -> None:
    """Load what asks the API: its sockets take clients meanwhile, half a second sooner."""
    import locallb.kubernetes.api.upgrade  # noqa: F401, PLC0415 - as above


def _upgraded(access: Access, namespace: str, pod: str) -> Upgraded:
    from locallb.kubernetes.api.upgrade import upgraded  # noqa: PLC0415 - as above

    return upgraded(access, namespace, pod)


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
        if not try_lock(open_lock(Path(relay_directory.LOCK))):
            sys.stderr.write("another process serves this relay already\n")
            return 1
        served = relay_directory.read(Path())
        _sweep(served.ports)
        asyncio.run(_run(served))
    except (ClientError, OSError) as error:
        sys.stderr.write(f"{_sentence(error)}\n")
        return 1
    return 0


def _sentence(error: ClientError | OSError) -> str:
    return reported(error) if isinstance(error, OSError) else str(error)


async def _run(served: Served) -> None:
    await Relay(served).run()
