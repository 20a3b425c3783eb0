"""Envoy's admin interface, over the unix socket in a proxy's directory: active configuration, failures, statistics.

It also drains listeners, and paces the polling of an Envoy that is about to start or to change.

Not here: the time limit of an answer before an Envoy counts as hanging (`watch.hangs`), and the desired
configuration.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from enum import Enum
from ipaddress import ip_address
from itertools import chain, repeat
from pathlib import Path
from typing import BinaryIO
from urllib.parse import quote

from msgspec import Struct

from locallb.envoy.bootstrap import ADMIN_SOCKET
from locallb.model.errors import ClientError
from locallb.model.fields import JsonObject
from locallb.model.identities import IPAddress, Protocol
from locallb.patterns import pattern
from locallb.storage.paths import by_descriptor

_REQUEST = b"GET /ready HTTP/1.1\r\nHost: envoy\r\nConnection: close\r\n\r\n"
_BYTES = 4096
_LINE = 65_536
"""Bytes of the longest line that is read of an answer: a version of a file, or a listener's name, is far shorter."""
_PEER = struct.Struct("3i")


class AdminReply(Enum):
    """What is known of a question."""

    NONE = "none"
    """It waits for an answer."""
    ANSWERED = "answered"
    ENDED = "ended"
    """The queried process has closed the connection without an answer, most often by ending."""


class QueueFullError(Exception):
    """The kernel's accept queue is full: the query was not sent."""


class AdminQuestion:
    """A query whether an Envoy answers at all. Raises QueueFullError, and OSError if it can't connect.

    It is sent, and its answer is received, without waiting for anything.
    """

    def __init__(self, directory: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.setblocking(False)
            with by_descriptor(directory) as short:
                self._socket.connect(str(short / ADMIN_SOCKET))
            self.pid = _listener(self._socket)
            """Listening process; 0 if it is unknown."""
            self._socket.send(_REQUEST)
        except BlockingIOError:
            self._socket.close()
            raise QueueFullError from None
        except OSError:
            self._socket.close()
            raise

    def fileno(self) -> int:
        """Return the descriptor that gets readable with the answer."""
        return self._socket.fileno()

    def reply(self) -> AdminReply:
        """Return what came so far."""
        try:
            answer = self._socket.recv(_BYTES)
        except BlockingIOError:
            return AdminReply.NONE
        except OSError:
            return AdminReply.ENDED
        return AdminReply.ANSWERED if answer else AdminReply.ENDED

    def close(self) -> None:
        self._socket.close()


def _listener(connection: socket.socket) -> int:
    """Return the process that listens at the other end, as the kernel names it; 0 for one that isn't seen from here."""
    if not hasattr(socket, "SO_PEERCRED"):
        return 0
    answer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
    pid: int = _PEER.unpack(answer)[0]
    return max(0, pid)


TIMEOUT = 2.0
"""Seconds that one answer may take."""
_SUBSCRIPTIONS = "^(listener_manager.lds|cluster_manager.cds).(version_text|update_(attempt|success|rejected|failure))$"
_MEMBERSHIPS = r"^cluster\.[^.]*\.membership_(healthy|total)$"
_CREATIONS = "^listener_manager.listener_create_success$"
_CREATED = pattern(r"listener_create_success: (\d+)")
_ARRIVALS = r"^listener\.[^.]*\.(downstream_cx_total|no_filter_chain_match)$"
_ARRIVAL = pattern(r"listener\.(?P<name>[^.]+)\.\w+: (?P<value>\d+)")
_MEMBERS = pattern(r"cluster\.(?P<name>[^.]+)\.membership_(?P<what>healthy|total): (?P<value>\d+)")
_STATISTIC = pattern(r"\w+\.(?P<kind>lds|cds)\.(?P<name>\w+): \"?(?P<value>[^\"\n]*)\"?")


def size_of_files(directory: Path) -> int:
    """Return how many bytes of files the Envoy in `directory` reads."""
    with suppress(OSError), os.scandir(directory) as entries:
        return sum(entry.stat().st_size for entry in entries if entry.name.endswith(".json"))
    return 0


class EnvoyAdminError(ClientError):
    """Envoy doesn't answer, or not as expected: one sentence."""


class Subscription(Struct, frozen=True):
    """What Envoy made of one file."""

    version: str = ""
    """The version that is active; that of a rejected one never appears."""
    attempts: int = 0
    successes: int = 0
    rejected: int = 0

    @property
    def settled(self) -> bool:
        """Every attempt so far has an outcome."""
        return self.attempts == self.successes + self.rejected


class Subscriptions(Struct, frozen=True):
    """Listeners and clusters."""

    lds: Subscription
    cds: Subscription


class EnvoyAdmin:
    """The Envoy that runs in `directory`. Every call is a connection of its own."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def ready(self) -> bool:
        """Return whether it answers and has finished its start. False, not an error, without an answer."""
        try:
            return self._ask("GET", "/ready", accept=(200, 503)).strip() == "LIVE"
        except EnvoyAdminError:
            return False

    def answers(self) -> bool:
        """Return whether anybody answers, at whatever point of its start. Without a socket nothing has to be asked."""
        if not os.path.lexists(self.directory / ADMIN_SOCKET):
            return False
        try:
            self._ask("GET", "/ready", accept=(200, 503))
        except EnvoyAdminError:
            return False
        return True

    def is_held(self) -> bool:
        """Return whether a process has the socket, one that hangs as well."""
        try:
            _connected(self.directory).close()
        except (TimeoutError, BlockingIOError):  # so many wait already
            return True
        except OSError:
            return False
        return True

    def versions(self) -> Subscriptions:
        """Read which versions are active, and what became of each attempt.

        Envoy looks at each of its statistics for that: 35 ms with 1,000 listeners.
        """
        return self._subscriptions(f"filter={_SUBSCRIPTIONS}")

    def active(self) -> Subscriptions:
        """Read which versions are active and nothing else, at a third of the cost."""
        return self._subscriptions("type=TextReadouts")

    def attempts(self) -> Subscriptions:
        """Read what became of each attempt and nothing else, likewise."""
        return self._subscriptions(f"type=Counters&filter={_SUBSCRIPTIONS}")

    def _subscriptions(self, query: str) -> Subscriptions:
        answer = self._ask("GET", f"/stats?{query}")
        statistics: dict[str, dict[str, str]] = {"lds": {}, "cds": {}}
        for match in _STATISTIC.finditer(answer):
            statistics[match["kind"]][match["name"]] = match["value"]
        return Subscriptions(_subscription(statistics["lds"]), _subscription(statistics["cds"]))

    def listeners(self) -> frozenset[str]:
        """Read the names of the listeners that are bound."""
        document = self._json("/listeners?format=json")
        return frozenset(str(status["name"]) for status in document.get("listener_statuses", ()))

    def failed_listeners(self) -> dict[str, str]:
        """Read the listeners of the last update that Envoy refused, by name, with its reason.

        Includes a changed listener with a previous version that is still active.
        """
        mask = "name,error_state.details"
        document = self._json(f"/config_dump?resource=dynamic_listeners&mask={mask}")
        named = [entry for entry in document.get("configs", ()) if entry.get("name") and "error_state" in entry]
        return {str(entry["name"]): str(entry["error_state"].get("details", "")) for entry in named}

    def places(self) -> frozenset[tuple[IPAddress, int, Protocol]]:
        """Read where the listeners are bound: inside a container that is somewhere else than where clients connect."""
        document = self._json("/listeners?format=json")
        return frozenset(_bound(status) for status in document.get("listener_statuses", ()))

    def draining(self) -> frozenset[tuple[IPAddress, int, Protocol]]:
        """Read where listeners were that are gone, but for the streams that they had accepted."""
        listeners = (
            (entry.get("draining_state") or {}).get("listener") for entry in self.dump("dynamic_listeners", ".*")
        )
        return frozenset(_bound({"local_address": listener["address"]}) for listener in listeners if listener)

    def created(self) -> int:
        """Count the listeners that its threads have begun to serve, each version of them."""
        return sum(int(count) for count in _CREATED.findall(self._ask("GET", f"/stats?filter={_CREATIONS}")))

    def arrivals(self) -> dict[str, int]:
        """Count the connections that came to each listener of published ports, by its `stat_prefix`."""
        counts: dict[str, int] = {}
        for match in _ARRIVAL.finditer(self._ask("GET", f"/stats?filter={_ARRIVALS}")):
            counts[match["name"]] = counts.get(match["name"], 0) + int(match["value"])
        return counts

    def healthy(self) -> dict[str, bool]:
        """Read of each cluster that has backends whether any is healthy, by the cluster's name."""
        answer = self._ask("GET", f"/stats?type=Gauges&filter={quote(_MEMBERSHIPS, safe='')}")
        members: dict[str, dict[str, int]] = {}
        for match in _MEMBERS.finditer(answer):
            members.setdefault(match["name"], {})[match["what"]] = int(match["value"])
        return {name: bool(count.get("healthy")) for name, count in members.items() if count.get("total")}

    def dump(self, resource: str, names: str) -> Sequence[JsonObject]:
        """Dump the resources of a kind by a regular expression of names; Envoy refuses one of 100 steps and more."""
        return self._json(f"/config_dump?resource={resource}&name_regex={quote(names, safe='')}").get("configs", [])

    def referred(self) -> frozenset[str]:
        """Read the versions of routes and secrets that are active."""
        return self.routes().union(self._versions_of("dynamic_active_secrets"))

    def routes(self) -> frozenset[str]:
        """Read the versions of routes that are active."""
        return frozenset(self._versions_of("dynamic_route_configs"))

    def _versions_of(self, kind: str) -> Iterator[str]:
        """Return the versions of what it has of a kind; it answers 404 where no listener ever wanted any."""
        path = f"/config_dump?resource={kind}&mask=version_info"
        answer = self._ask("GET", path, accept=(200, 404))
        if not answer.startswith(f"{kind} not found"):
            yield from (str(entry.get("version_info")) for entry in self._document(path, answer).get("configs", ()))

    def warming(self) -> frozenset[str]:
        """Read the names of the clusters that aren't ready: their backends are being read, or checked once."""
        document = self._json("/config_dump?resource=dynamic_warming_clusters&mask=cluster.name")
        return frozenset(str((entry.get("cluster") or {}).get("name")) for entry in document.get("configs", ()))

    def clusters(self) -> Sequence[JsonObject]:
        """Read what became of connections and requests, backend by backend, whatever statistics it keeps."""
        return self._json("/clusters?format=json").get("cluster_statuses", [])

    def statistics(self, names: str) -> Sequence[JsonObject]:
        """Read the statistics that match `names`, histograms with each bin that Envoy counts in."""
        return self._json(f"/stats?format=json&histogram_buckets=detailed&filter={quote(names, safe='')}").get(
            "stats", []
        )

    def drain(self) -> None:
        """Stop listening on every address; open connections go on."""
        self._ask("POST", "/drain_listeners")

    def _json(self, path: str) -> dict[str, list[JsonObject]]:
        return self._document(path, self._ask("GET", path))

    def _document(self, path: str, answer: str) -> dict[str, list[JsonObject]]:
        try:
            document: dict[str, list[JsonObject]] = json.loads(answer)
        except ValueError as error:
            raise EnvoyAdminError(f"the Envoy in {self.directory} answers {path} without JSON") from error
        return document

    def _ask(self, method: str, path: str, accept: tuple[int, ...] = (200,)) -> str:
        short = path.partition("?")[0]
        try:
            with closing(_connected(self.directory)) as connection:
                connection.sendall(f"{method} {path} HTTP/1.1\r\nHost: envoy\r\n\r\n".encode())
                with connection.makefile("rb") as stream:
                    status, body = _read_answer(stream)
        except (OSError, ValueError) as error:
            raise EnvoyAdminError(f"the Envoy in {self.directory} doesn't answer {short}: {error}") from error
        answer = body.decode(errors="replace")
        if status not in accept:
            raise EnvoyAdminError(f"the Envoy in {self.directory} answers {short} with {status}: {answer[:200]}")
        return answer


def _connected(directory: Path) -> socket.socket:
    """Connect to the socket in a directory. Raises OSError."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(TIMEOUT)
        with by_descriptor(directory) as short:
            connection.connect(str(short / ADMIN_SOCKET))
    except OSError:
        connection.close()
        raise
    return connection


def _read_answer(stream: BinaryIO) -> tuple[int, bytes]:
    """Read the status and body of Envoy's answer. Raises OSError, and ValueError for one that is cut short.

    Python's client reads the headers as those of a mail, which costs more than all the rest of a question.
    """
    first = stream.readline(_LINE)
    if not first.startswith(b"HTTP/1."):
        raise ValueError("no answer of HTTP" if first else "it closed the connection")
    headers: dict[bytes, bytes] = {}
    while (line := stream.readline(_LINE)) not in {b"\r\n", b""}:
        name, _, value = line.partition(b":")
        headers[name.lower()] = value.strip()
    status = int(first[9:12])
    if headers.get(b"transfer-encoding") != b"chunked":
        return status, _read_exactly(stream, int(headers.get(b"content-length", b"0")))
    chunks = []
    while size := int(stream.readline(_LINE), 16):
        chunks.append(_read_exactly(stream, size))
        stream.readline(_LINE)
    return status, b"".join(chunks)


def _read_exactly(stream: BinaryIO, size: int) -> bytes:
    data = stream.read(size)
    if len(data) < size:
        raise ValueError(f"its answer ends after {len(data)} of {size} bytes")
    return data


def _bound(status: JsonObject) -> tuple[IPAddress, int, Protocol]:
    place = status["local_address"]["socket_address"]
    address = ip_address(place["address"])
    return address, int(place["port_value"]), Protocol(place.get("protocol", "TCP"))


def _subscription(statistics: dict[str, str]) -> Subscription:
    def number(name: str) -> int:
        value = statistics.get(name, "")
        return int(value) if value.isdigit() else 0

    rejected = number("update_rejected") + number("update_failure")
    return Subscription(
        statistics.get("version_text", ""), number("update_attempt"), number("update_success"), rejected
    )


_QUICK, _OFTEN = 0.002, 8
"""Seconds of the first pauses, and how many those are: most things take a few milliseconds."""
_GLANCE = 0.5
"""Seconds without an answer after which it is asked whether whatever runs an Envoy is there still."""
_SLOWER = (0.004, 0.008)
_SLOW = 0.015
"""Seconds of the others. Ten Envoys that start at a time are asked for as long as that takes; every question costs both
sides a millisecond of the same cores."""


def pauses() -> Iterator[float]:
    """Yield waits in seconds, without end."""
    return chain(repeat(_QUICK, _OFTEN), _SLOWER, repeat(_SLOW))


def comes_to_answer(directory: Path, timeout: float) -> bool:
    """Return whether the Envoy in `directory` answers within so many seconds."""
    deadline, pause, admin = time.monotonic() + timeout, pauses(), EnvoyAdmin(directory)
    while not (answers := admin.answers()) and time.monotonic() < deadline:
        time.sleep(next(pause))
    return answers


def answers_while_present(directory: Path, timeout: Callable[[], float | None]) -> bool:
    """Wait until the Envoy in `directory` answers; return False once what runs it is gone meanwhile.

    `timeout` is asked now and then for the seconds since the beginning after which waiting ends, with True; None once
    it is gone.
    """
    began = time.monotonic()
    while not comes_to_answer(directory, _GLANCE):
        seconds = timeout()
        if seconds is None:
            return False
        if time.monotonic() - began >= seconds:
            break
    return True
