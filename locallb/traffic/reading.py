"""Reads from running proxies: their figures, by two queries each, all at once and on demand, and their access logs.

A log is received by a socket in the proxy's directory, to which Envoy sends each message as an HTTP request, while a
gate is open: for a thousand lines, and again as long as lines arrive. So no log is kept anywhere, and a reader that was
killed, or doesn't go on, gets no more lines. Not here: the content of answers and messages (`figures`).
"""

from __future__ import annotations

import os
import selectors
import socket
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import BinaryIO

from locallb import safe_files
from locallb.envoy.admin import EnvoyAdmin
from locallb.envoy.listeners import CLOSED, GATE, SOCKET, gate
from locallb.model.errors import ClientError, refusal
from locallb.model.serving import Proxy
from locallb.planning.planned import Plan
from locallb.storage import files
from locallb.storage.paths import by_descriptor
from locallb.storage.proxy_directories import Proxies
from locallb.traffic.figures import STATISTICS, TrafficRow, UpstreamFigures, by_upstream, rejected, traffic_rows

_AT_ONCE = 16


def traffic(plan: Plan, timeout: float | None = None) -> tuple[TrafficRow, ...]:
    """Return what flows through every Service of the plan; who hasn't answered after `timeout` seconds is silent."""
    workers = ThreadPoolExecutor(_AT_ONCE)
    requested = {planned.proxy.name: workers.submit(_figures, planned.proxy) for planned in plan.proxies}
    answered, _ = wait(requested.values(), timeout)
    workers.shutdown(wait=False, cancel_futures=True)
    read = {name: future.result() for name, future in requested.items() if future in answered}
    answers = {name: answer for name, answer in read.items() if answer is not None}
    rejections = {name: count for name, (_, count) in answers.items() if count is not None}
    return traffic_rows(plan, {name: figures for name, (figures, _) in answers.items()}, rejections)


def _figures(proxy: Proxy) -> tuple[Mapping[str, UpstreamFigures], int | None] | None:
    """Return the figures of a proxy, and the number of rejected requests; None where it doesn't answer."""
    with suppress(ClientError):
        admin = EnvoyAdmin(Proxies.ours().path(proxy.id))
        statistics = admin.statistics(STATISTICS)
        return by_upstream(admin.clusters(), statistics), rejected(statistics)
    return None


ENOUGH = 1000
"""Lines that a proxy may say until its gate is opened again."""
PACE = 0.2
"""Seconds between two openings of a gate."""
IDLE = 5.0
"""The same where no line came: those that it let pass may have been lost, of a reader that was stopped for a while."""
_LOCK = "logs.lock"
_MODE = 0o660
"""As the admin socket: a container's group may speak."""
_TIMEOUT = 2.0
"""Seconds that a message may take once it began."""
_PAUSE = 0.05
"""Seconds without new connections where one couldn't be taken."""
_LONGEST = 64 << 20
_THANKS = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"


class LogError(ClientError):
    """A proxy's log can't be read: one sentence."""


class Tap:
    """What one proxy says: its socket, and its gate."""

    def __init__(self, directory: Path) -> None:
        """Begin. Raises LogError if another process reads, or the proxy has no log."""
        if not (directory / GATE).exists():
            raise LogError(f"the proxy in {directory} keeps no log yet: run `locallb up`")
        self._directory, self.came, self._opened = directory, 0, time.monotonic()
        try:
            with ExitStack() as begun:
                self._begin(begun)
                self._begun = begun.pop_all()
        except OSError as error:
            raise LogError(f"the proxy in {directory} can't be listened to: {refusal(error)}") from error

    @property
    def is_here(self) -> bool:
        """Whether the directory is still the one where this began: `destroy` and `up` make another at its path."""
        try:
            return os.path.samestat(os.fstat(self._lock), (self._directory / _LOCK).lstat())
        except OSError:
            return False

    def renew(self) -> bool:
        """Let more lines pass, where it is time for that; tell whether the last ones were all that may come."""
        if time.monotonic() < self._opened + (PACE if self.came else IDLE):
            return False
        is_full, self.came, self._opened = self.came >= ENOUGH, 0, time.monotonic()
        self._open()
        return is_full

    def shut(self) -> None:
        """Close the gate, and take the socket's name away."""
        if self.is_here:
            with suppress(files.FilesError):
                self._write(CLOSED)
            with suppress(OSError):
                (self._directory / SOCKET).unlink(missing_ok=True)

    def end(self) -> None:
        self._begun.close()

    def _begin(self, begun: ExitStack) -> None:
        self._lock = _locked(self._directory)
        begun.callback(os.close, self._lock)
        self._turn = int(files.read_shared(self._directory / GATE) == gate(ENOUGH + 1))  # of a reader that was killed
        self.socket = begun.enter_context(_listening(self._directory))
        begun.callback(self.shut)
        self._open()

    def _open(self) -> None:
        self._turn = 1 - self._turn
        self._write(ENOUGH + self._turn)  # the same number again would change nothing

    def _write(self, lines: int) -> None:
        path = self._directory / GATE
        if self.is_here and path.exists():  # not that of a proxy that is gone
            files.write(path, gate(lines), mode=files.mode(path))


class TrafficReading:
    """What several proxies say."""

    def __init__(self) -> None:
        self.taps: dict[Path, Tap] = {}
        self._selector = selectors.DefaultSelector()

    def follow(self, directories: Iterable[Path]) -> Iterator[str]:
        """Read from these and no others; yield why not from one of them."""
        wanted = set(directories)
        for directory in [path for path, tap in self.taps.items() if path not in wanted or not tap.is_here]:
            self._leave(self.taps.pop(directory))
        for directory in sorted(wanted - self.taps.keys()):
            try:
                tap = self.taps[directory] = Tap(directory)
            except ClientError as error:
                yield str(error)
                continue
            self._selector.register(tap.socket, selectors.EVENT_READ, (tap, None))

    def messages(self, seconds: float) -> Iterator[tuple[Tap, bytes]]:
        """Yield messages as they come, for so long, and from whom."""
        until = time.monotonic() + seconds
        while (remaining := until - time.monotonic()) > 0:
            for key, _ in self._selector.select(remaining):
                tap, stream = key.data
                if stream is None:
                    self._accept(tap)
                elif (message := self._take(key.fileobj, stream)) is not None:  # type: ignore[arg-type]  # a socket
                    yield tap, message

    def shut(self) -> None:
        """Close all gates, at whatever moment before this process ends."""
        for tap in list(self.taps.values()):
            tap.shut()

    def end(self) -> None:
        list(self.follow(()))
        self._selector.close()

    def _leave(self, tap: Tap) -> None:
        mine = [key for key in self._selector.get_map().values() if key.data[0] is tap]
        for key in mine:
            self._close(key.fileobj, key.data[1])  # type: ignore[arg-type]  # a socket
        tap.end()

    def _close(self, connection: socket.socket, stream: BinaryIO | None) -> None:
        self._selector.unregister(connection)
        if stream:
            stream.close()
        connection.close()

    def _accept(self, tap: Tap) -> None:
        try:
            connection, _ = tap.socket.accept()
            connection.settimeout(_TIMEOUT)
            self._selector.register(connection, selectors.EVENT_READ, (tap, connection.makefile("rb")))
        except OSError:  # no descriptor is left, and who calls waits all the same
            time.sleep(_PAUSE)

    def _take(self, connection: socket.socket, stream: BinaryIO) -> bytes | None:
        try:
            message = _message(stream)
            connection.sendall(_THANKS)
        except (OSError, ValueError):
            self._close(connection, stream)
            return None
        return message


def _message(stream: BinaryIO) -> bytes:
    """Read the body of a request, which comes in chunks. Raises ValueError for another, OSError for none."""
    while (line := stream.readline()) != b"\r\n":
        if not line:
            raise ValueError("it ended")
    chunks = list[bytes]()
    while size := int(stream.readline(), 16):
        if size + sum(map(len, chunks)) > _LONGEST:
            raise ValueError("it is too long")
        chunks.append(stream.read(size))
        stream.readline()
    stream.readline()
    return b"".join(chunks)


def _locked(directory: Path) -> int:
    """Be the only reader, until this process ends, however it does."""
    descriptor = safe_files.open_lock(directory / _LOCK)
    if not safe_files.try_lock(descriptor):
        os.close(descriptor)
        raise LogError(f"another `locallb logs`, or a view, reads the proxy in {directory}: end that first")
    return descriptor


def _listening(directory: Path) -> socket.socket:
    """Listen. Raises OSError."""
    with by_descriptor(directory) as short:
        place = short / SOCKET
        place.unlink(missing_ok=True)  # of a reader that was killed
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            listener.bind(str(place))
            place.chmod(_MODE)
            listener.listen()
        except OSError:
            listener.close()
            raise
    return listener
