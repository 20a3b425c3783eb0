"""Changes of this host's routes and rules as events, local addresses, and routes in the network of another process.

Not here: this host's own routes (`netlink`), and their meaning (`model.routes`).
"""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address, ip_network
from pathlib import Path

from locallb.host import netlink
from locallb.host.netlink import Link, RouteError, opened, routes, rules, take
from locallb.model.identities import IPAddress
from locallb.model.pacing import Backoff, Pace
from locallb.model.routes import HostRoute, HostRule, PodRoute, is_host_only, networks_of_host
from locallb.threads import SupervisedThread, Task, jitter


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
            yield PodRoute(ip_network(f"{_address(destination)}/{_address(mask)}"), _address(gateway))


def _address(hexadecimal: str) -> IPv4Address:
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
        return is_host_only(netlink.route_to(address), networks_of_host(netlink.interfaces()))
    except netlink.RouteError:
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
