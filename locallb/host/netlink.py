"""Routes, rules and interfaces of this host, read and followed over netlink; routes are changed as well.

No `ip` command, no right for reading. Local addresses and routes in the network of another process are read, too.

Two kinds of change only: a local route to `lo` more or less, and a route to pods. Not here: which routes are wanted and
which are in the way.
"""

from __future__ import annotations

import errno
import os
import select
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address, ip_network
from pathlib import Path

from locallb.model.errors import ClientError
from locallb.model.identities import IPAddress, IPNetwork
from locallb.model.pacing import Backoff, Pace
from locallb.model.routes import (
    LOOKUP,
    NO_ACTION,
    POD_PROTOCOL,
    PROTOCOL,
    HostRoute,
    HostRule,
    Interface,
    PodRoute,
    is_host_only,
    networks_of_host,
)
from locallb.threads import SupervisedThread, Task, jitter

Link = socket.socket
_HEADER = struct.Struct("=IHHII")  # length, type, flags, sequence, port
_ROUTE = struct.Struct("=BBBBBBBBI")  # family, bits, source bits, tos, table, protocol, scope, type, flags
_INTERFACE = struct.Struct("=BxHiII")  # family, hardware type, index, flags, change
_ATTRIBUTE = struct.Struct("=HH")  # length, type
_NEW, _DELETE, _GET = 24, 25, 26
_NEW_RULE, _GET_RULE = 32, 34
_NEW_INTERFACE, _GET_INTERFACE = 16, 18
_ERROR, _DONE = 2, 3
_REQUEST, _ACK, DUMP, _CREATE_NEW, _CREATE_OR_REPLACE = 1, 4, 0x300, 0x600, 0x500
_DESTINATION, _OUT, _GATEWAY, _METRIC, _TABLE_NUMBER = 1, 4, 5, 6, 15
_INTERFACE_NAME, _MASTER, _INTERFACE_INFO, _INTERFACE_KIND = 3, 10, 18, 1
_RULE_TO, _RULE_FROM, _RULE_IN, _RULE_PRIORITY, _RULE_MARK = 1, 2, 3, 6, 10
_RULE_LONGER, _RULE_MASK, _RULE_OUT = 14, 16, 17
_RULE_SPECIAL = {20, 22, 23, 24}
"""Of users, a protocol, ports."""
_INVERTED = 2
_ACTIONS = {1: LOOKUP, 3: NO_ACTION}
_ALL = 0xFFFFFFFF
_LOCAL_TABLE, _LOCAL_TYPE, _HOST_SCOPE = 255, 2, 254
_MAIN_TABLE, _UNICAST = 254, 1
_TYPES = {1: "unicast", 2: "local", 3: "broadcast", 4: "anycast", 5: "multicast", 6: "blackhole", 7: "unreachable"}
_CLONED = 0x200
_FAMILIES = (socket.AF_INET, socket.AF_INET6)
_BUFFER = 1 << 17


_FORBIDDEN = {errno.EPERM, errno.EACCES, errno.EAFNOSUPPORT, errno.EPROTONOSUPPORT, errno.ENOSYS, errno.EOPNOTSUPP}
_NOWHERE = {errno.ENETUNREACH, errno.EHOSTUNREACH, errno.EACCES, errno.EINVAL}
"""Why no route leads to an address: none is there, or one that drops packets."""
_INTERRUPTED = 0x10
"""A flag of an answer: the table changed meanwhile, so the list may lack something."""
_TRIES = 10


class RouteError(ClientError):
    """Routes can't be read or changed: one sentence."""

    def __init__(self, message: str, number: int | None = None) -> None:
        super().__init__(message)
        self.number = number
        self.forbidden = number in _FORBIDDEN
        """This process may never talk to the kernel about routes, as in a sandbox."""


def routes() -> tuple[HostRoute, ...]:
    """Read the routes of every table of this network namespace, both families. Raises RouteError."""
    return tuple(route for data in _listed("routes", _GET, _NEW) if (route := _parse(data)))


def route_to(address: IPAddress) -> HostRoute | None:
    """Return the route that the kernel takes to an address now, after all rules; None where none leads there.

    Raises RouteError.
    """
    family, bits = (socket.AF_INET, 32) if address.version == 4 else (socket.AF_INET6, 128)  # noqa: PLR2004 - IP version 4
    body = _ROUTE.pack(family, bits, 0, 0, 0, 0, 0, 0, 0) + _attribute(_DESTINATION, address.packed)
    try:
        answers = [data for kind, data in talk(_GET, _ACK, body) if kind == _NEW]
    except OSError as error:
        if error.errno in _NOWHERE:
            return None
        raise RouteError(f"the route to {address} can't be read: {error.strerror}", error.errno) from error
    return _parse(answers[0], cloned=True) if answers else None


def interfaces() -> tuple[Interface, ...]:
    """Read the interfaces of this network namespace. Raises RouteError."""
    try:
        return tuple(map(_parse_interface, _dump(_INTERFACE.pack(0, 0, 0, 0, 0), _GET_INTERFACE, _NEW_INTERFACE)))
    except OSError as error:
        raise RouteError(f"the interfaces of this host can't be read: {error.strerror}", error.errno) from error


def rules() -> tuple[HostRule, ...]:
    """Read the rules of this network namespace, both families; none where the kernel has none. Raises RouteError."""
    try:
        return tuple(map(_parse_rule, _listed("routing rules", _GET_RULE, _NEW_RULE)))
    except RouteError as error:
        if error.forbidden:
            return ()
        raise


def _listed(what: str, ask: int, answer: int) -> Iterator[bytes]:
    """List all entries of a kind as the kernel's messages. Raises RouteError."""
    for family in _FAMILIES:
        try:
            yield from _dump(_ROUTE.pack(family, 0, 0, 0, 0, 0, 0, 0, 0), ask, answer)
        except OSError as error:
            raise RouteError(f"the {what} of this host can't be read: {error.strerror}", error.errno) from error


def _dump(body: bytes, ask: int, answer: int) -> list[bytes]:
    """List the entries at a moment without concurrent changes. Raises OSError."""
    for attempt in range(_TRIES):
        try:
            return [data for kind, data in talk(ask, DUMP, body) if kind == answer]
        except InterruptedError:
            if attempt == _TRIES - 1:
                raise
    raise AssertionError


def add_local(prefix: IPNetwork) -> None:
    """Make every address of `prefix` this host's own. Raises RouteError, also for an existing one."""
    _change(_NEW, _CREATE_NEW, prefix, "added")


def remove_local(prefix: IPNetwork) -> None:
    """Undo `add_local`. Raises RouteError."""
    _change(_DELETE, 0, prefix, "removed")


def put_pod_route(route: PodRoute, metric: int) -> None:
    """Make a way to pods, in place of one that leads there with the same metric. Raises RouteError."""
    _change_pod_route(_NEW, _CREATE_OR_REPLACE, route, metric, "added")


def remove_pod_route(route: PodRoute, metric: int) -> None:
    """Undo `put_pod_route`; gone is fine. Only a route of our protocol and this metric goes. Raises RouteError."""
    try:
        _change_pod_route(_DELETE, 0, route, metric, "removed")
    except RouteError as error:
        if error.number != errno.ESRCH:
            raise


def _change_pod_route(kind: int, flags: int, route: PodRoute, metric: int, what: str) -> None:
    family = socket.AF_INET if route.destination.version == 4 else socket.AF_INET6  # noqa: PLR2004 - IP version 4
    head = _ROUTE.pack(family, route.destination.prefixlen, 0, 0, _MAIN_TABLE, POD_PROTOCOL, 0, _UNICAST, 0)
    body = head + _attribute(_DESTINATION, route.destination.network_address.packed)
    body += _attribute(_GATEWAY, route.gateway.packed) + _attribute(_METRIC, struct.pack("=I", metric))
    try:
        for _ in talk(kind, _ACK | flags, body):
            pass
    except OSError as error:
        raise RouteError(f"the route {route} can't be {what}: {error.strerror}", error.errno) from error


def _change(kind: int, flags: int, prefix: IPNetwork, what: str) -> None:
    family = socket.AF_INET if prefix.version == 4 else socket.AF_INET6  # noqa: PLR2004 - IP version 4
    scope = _HOST_SCOPE if family == socket.AF_INET else 0
    head = _ROUTE.pack(family, prefix.prefixlen, 0, 0, _LOCAL_TABLE, PROTOCOL, scope, _LOCAL_TYPE, 0)
    try:
        device = struct.pack("=I", socket.if_nametoindex("lo"))
        body = head + _attribute(_DESTINATION, prefix.network_address.packed) + _attribute(_OUT, device)
        for _ in talk(kind, _ACK | flags, body):
            pass
    except OSError as error:
        raise RouteError(f"the local route {prefix} can't be {what}: {error.strerror}") from error


def _attribute(kind: int, data: bytes) -> bytes:
    padding = b"\0" * (-len(data) % 4)
    return _ATTRIBUTE.pack(_ATTRIBUTE.size + len(data), kind) + data + padding


def talk(kind: int, flags: int, body: bytes, protocol: int = 0) -> Iterator[tuple[int, bytes]]:
    """Send one request about routes, or by another protocol, and return the answer's messages. Raises OSError."""
    with opened(protocol=protocol) as link:
        link.sendall(_HEADER.pack(_HEADER.size + len(body), kind, _REQUEST | flags, 1, 0) + body)
        while True:
            for answer, data in _messages(link.recv(_BUFFER)):
                if answer == _DONE:
                    return
                if answer == _ERROR:
                    number = -int.from_bytes(data[:4], "little", signed=True)
                    if number:
                        raise OSError(number, os.strerror(number))
                    return
                yield answer, data


def opened(groups: int = 0, protocol: int = 0) -> Link:
    """Open a socket for requests, or to hear of what these groups of the kernel tell. Raises OSError."""
    link = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, protocol)
    try:
        link.bind((0, groups))
    except OSError:
        link.close()
        raise
    return link


def take(link: Link, maximum: int) -> None:
    """Take the messages that wait, so many; what the kernel couldn't keep (ENOBUFS) is as good as one."""
    for _ in range(maximum):
        try:
            link.recv(1, socket.MSG_DONTWAIT | socket.MSG_TRUNC)
        except OSError as error:
            if error.errno != errno.ENOBUFS:
                return


def _messages(data: bytes) -> Iterator[tuple[int, bytes]]:
    while len(data) >= _HEADER.size:
        length, kind, flags, *_ = _HEADER.unpack_from(data)
        if flags & _INTERRUPTED:
            raise InterruptedError(errno.EINTR, "they change all the time")
        yield kind, data[_HEADER.size : length]
        data = data[(length + 3) & ~3 :]


def _parse(data: bytes, *, cloned: bool = False) -> HostRoute | None:
    family, bits, _, _, table, protocol, _, kind, flags = _ROUTE.unpack_from(data)
    if family not in _FAMILIES or (flags & _CLONED and not cloned):
        return None
    existing = dict(_attributes(data[_ROUTE.size :]))
    zero = b"\0" * (4 if family == socket.AF_INET else 16)
    destination = ip_network((existing.get(_DESTINATION, zero), bits))
    gateway = _address(existing[_GATEWAY]) if _GATEWAY in existing else None
    number = int.from_bytes(existing[_TABLE_NUMBER], "little") if _TABLE_NUMBER in existing else table
    metric = int.from_bytes(existing.get(_METRIC, b""), "little")
    return HostRoute(
        destination, _TYPES.get(kind, str(kind)), _device(existing.get(_OUT)), gateway, number, protocol, metric
    )


def _parse_interface(data: bytes) -> Interface:
    _, _, index, _, _ = _INTERFACE.unpack_from(data)
    existing = dict(_attributes(data[_INTERFACE.size :]))
    details = dict(_attributes(existing.get(_INTERFACE_INFO, b"")))
    return Interface(
        name=_text(existing.get(_INTERFACE_NAME, b"")),
        index=index,
        kind=_text(details.get(_INTERFACE_KIND, b"")),
        master=int.from_bytes(existing.get(_MASTER, b""), "little"),
    )


def _text(value: bytes) -> str:
    return value.rstrip(b"\0").decode(errors="replace")


def _parse_rule(data: bytes) -> HostRule:
    family, to_bits, from_bits, _, table, _, _, action, flags = _ROUTE.unpack_from(data)
    existing = dict(_attributes(data[_ROUTE.size :]))
    numbers = {kind: int.from_bytes(value, "little") for kind, value in existing.items()}
    mark, longer = numbers.get(_RULE_MARK, 0), numbers.get(_RULE_LONGER, _ALL)
    return HostRule(
        version=4 if family == socket.AF_INET else 6,
        priority=numbers.get(_RULE_PRIORITY, 0),
        table=numbers.get(_TABLE_NUMBER, table),
        action=_ACTIONS.get(action, "led elsewhere"),
        source=ip_network((existing[_RULE_FROM], from_bits)) if _RULE_FROM in existing else None,
        destination=ip_network((existing[_RULE_TO], to_bits)) if _RULE_TO in existing else None,
        mark=mark,
        mask=numbers.get(_RULE_MASK, _ALL if mark else 0),
        device=existing.get(_RULE_IN, b"lo\0") != b"lo\0" or _RULE_OUT in existing,
        special=not _RULE_SPECIAL.isdisjoint(existing),
        inverted=bool(flags & _INVERTED),
        longer_than=-1 if longer == _ALL else longer,
    )


def _attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    while len(data) >= _ATTRIBUTE.size:
        length, kind = _ATTRIBUTE.unpack_from(data)
        if length < _ATTRIBUTE.size:
            return
        yield kind, data[_ATTRIBUTE.size : length]
        data = data[(length + 3) & ~3 :]


def _address(packed: bytes) -> IPAddress:
    return IPv4Address(packed) if len(packed) == 4 else IPv6Address(packed)  # noqa: PLR2004 - bytes of an IPv4 address


def _device(index: bytes | None) -> str:
    if index is None:
        return ""
    try:
        return socket.if_indextoname(int.from_bytes(index, "little"))
    except OSError:
        return ""


def pod_routes_of(pid: int, metric: int) -> frozenset[PodRoute] | None:
    """Return the routes of this metric where a process is; None where /proc doesn't provide them.

    They are read from /proc, which needs no right to enter the network namespace. In these tables only the metric
    identifies a route's owner. In a pod /proc has the pod's processes, and other ones under the numbers that the engine
    names. None is also the result for a process that is absent or hidden from this user, and for another one of that
    number.
    """
    try:
        if _network_of(str(pid)) == _network_of("self"):
            return None
        four, six = _lines(pid, "route"), _lines(pid, "ipv6_route")
    except OSError:
        return None
    return frozenset((*_of_ipv4(four, metric), *_of_ipv6(six, metric)))


def _network_of(process: str) -> int:
    """Return what no other network has: each has files of its own, which anybody may see. Raises OSError."""
    return Path(f"/proc/{process}/net/route").stat().st_ino


def _lines(pid: int, name: str) -> list[list[str]]:
    """Read a table; empty where the kernel has no such. Raises OSError."""
    with suppress(FileNotFoundError):
        return [line.split() for line in Path(f"/proc/{pid}/net/{name}").read_text(encoding="ascii").splitlines()]
    return []


def _of_ipv4(lines: list[list[str]], metric: int) -> Iterator[PodRoute]:
    for _, destination, gateway, _, _, _, number, mask, *_ in lines[1:]:
        if int(number) == metric:
            yield PodRoute(ip_network(f"{_address_in(destination)}/{_address_in(mask)}"), _address_in(gateway))


def _address_in(hexadecimal: str) -> IPv4Address:
    return IPv4Address(bytes.fromhex(hexadecimal)[::-1])


def _of_ipv6(lines: list[list[str]], metric: int) -> Iterator[PodRoute]:
    for destination, bits, _, _, gateway, number, *_ in lines:
        if int(number, 16) == metric:
            network = ip_network((bytes.fromhex(destination), int(bits, 16)))
            yield PodRoute(network, IPv6Address(bytes.fromhex(gateway)))


def is_of_host(address: IPAddress) -> bool:
    """Return whether packets to `address` stay on this host now; False where the kernel has no answer.

    The address is this host's own, or of a container or virtual machine that runs on it.
    """
    if isinstance(address, IPv6Address):
        if address.scope_id:
            return False
        address = address.ipv4_mapped or address
    if address.is_loopback or address.is_unspecified:  # the latter leads to loopback, too
        return True
    try:
        return is_host_only(route_to(address), networks_of_host(interfaces()))
    except RouteError:
        return False


_GROUPS = 0x1 | 0x40 | 0x80 | 0x400 | 0x40000
"""RTMGRP_LINK; _ROUTE and _RULE, of IPv4 and of IPv6. IPv4 routes go without a word when their link goes down."""
_REST = 0.01
"""Seconds at least between two looks."""
_SHARE = 9
"""A rest is so many times as long as the look before it."""
UNREADABLE = Pace(first=_REST, longest=5.0)
"""Of looks while the routes can't be read."""
_MAX = 1000
"""Messages that are taken at once."""


class RouteEvents:
    """Calls `changed` from a thread of its own when routes became different since this was made, until `stop`.

    Changes are reported by rtnetlink, whichever process made them. A message only triggers a check: the routes are read
    and compared, so routes that can't affect an address of a Service or a pod (link-local ones of each starting
    container) cause no call, and a lost message loses nothing. A flood of messages costs a tenth of a core at most, and
    unreadable routes are read less and less often.
    """

    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        self._observed: frozenset[HostRoute | HostRule] | None = None
        """The routes at the last look; None where they aren't known."""
        self._due = False
        """Something was heard that hasn't been looked at."""
        self._backoff = Backoff(UNREADABLE)
        self._bell = os.eventfd(0, os.EFD_CLOEXEC)
        self._link = _subscribed()
        self._thread = SupervisedThread(Task.ROUTES, "routes", self._follow)
        self._thread.start()

    def stop(self) -> None:
        self._thread.stop()
        os.eventfd_write(self._bell, 1)
        if self._thread.join(2):
            os.close(self._bell)
            if self._link:
                self._link.close()

    def _follow(self) -> None:
        if self._link is None:  # a sandbox without netlink
            self._thread.stopped.wait()
            return
        waiting = select.poll()  # of descriptors of any number: a loop with a thousand proxies has as many
        for descriptor in (self._link.fileno(), self._bell):
            waiting.register(descriptor, select.POLLIN)
        while not self._thread.stopped.is_set():
            if not self._due:
                waiting.poll()
            if self._thread.stopped.is_set():
                return
            self._due, began = True, time.monotonic()
            take(self._link, _MAX)
            self._due, now = not self._inspect(), time.monotonic()
            self._backoff = self._backoff.failed(now, jitter()) if self._due else self._backoff.succeeded(now)
            self._rest(max(_REST, _SHARE * (now - began), self._backoff.wait(now)))

    def _rest(self, seconds: float) -> None:
        """Look at nothing for so long, unless it ends."""
        self._thread.stopped.wait(seconds)

    def _inspect(self) -> bool:
        """Compare the routes with those of the last look; False if they can't be read while they change."""
        try:
            table = frozenset[HostRoute | HostRule]((*rules(), *(route for route in routes() if route.is_usual)))
        except RouteError as error:
            return error.forbidden
        if table != self._observed:
            self._changed()
            self._observed = table
        return True


def _subscribed() -> Link | None:
    """Return a socket that hears of routes; None where that isn't allowed."""
    try:
        return opened(_GROUPS)
    except OSError:
        return None
