"""Reports changes of routes and rules of this host at once, by rtnetlink, whoever made them.

A message only says that it is worth a look: the routes are read and compared, so what no address of a Service and no
pod can be behind (link-local routes of each container that starts) wakes nobody, and a lost message loses nothing. A
flood of messages costs a tenth of a core at most, and routes that can't be read are asked for less and less often. Not
here: what routes mean.
"""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable

from locallb.host.netlink import Link, RouteError, opened, routes, rules, take
from locallb.model.network.routes import Route
from locallb.model.network.routing_rules import Rule
from locallb.model.pacing import Backoff, Pace
from locallb.threads.jitter import jitter
from locallb.threads.supervised import SupervisedThread, Task

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
    """Calls `changed` from a thread of its own when routes became different since this was made, until `stop`."""

    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        self._observed: frozenset[Route | Rule] | None = None
        """The routes at the last look; None where they aren't known."""
        self._due = False
        """Something was heard that hasn't been looked at."""
        self._backoff = Backoff(UNREADABLE)
        self._bell = os.eventfd(0, os.EFD_CLOEXEC)
        self._link = _subscribed()
        self._thread = SupervisedThread(Task.ROUTES, "routes", self._follow)
        self._thread.start()

    def stop(self) -> None:
        """Report nothing any more."""
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
            table = frozenset[Route | Rule]((*rules(), *(route for route in routes() if route.is_usual)))
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
