"""Limits of one Gateway: the matches and hostnames of all its routes together.

A proxy gets each match of a route once for every host that the route accepts, so few objects can need much. The last
route that exceeds the remaining number is refused; others are served. Not here: bounds of single objects
(`gateway.parsing`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from msgspec import Struct, field

from locallb.gateway.hostnames import covering, covers

MAX_ENTRIES = 20_000
"""Matches of all hosts of a Gateway, of which a large expression counts as several: some tens of megabytes."""
MAX_GATEWAY_AUTHORITIES = 16 << 20
"""Bytes of the authorities, in PEM, of all backends to which a proxy speaks: each has a copy of its own."""


class Capacity(Struct):
    """The remaining capacity, as routes are attached one after the other. Counts too much rather than too little."""

    remaining: int
    _hosts: set[tuple[int, str]] = field(default_factory=set)
    _hosts_under: Counter[tuple[int, str]] = field(default_factory=Counter)
    """Number of hosts under a hostname, including itself, by number of the listener."""
    _matches: Counter[tuple[int, str]] = field(default_factory=Counter)
    """Number of matches that were attached to a hostname."""

    def open(self, listener: int, hostname: str) -> None:
        """Take a host over, which has the matches of whatever covers it."""
        if (listener, hostname) not in self._hosts:
            self._hosts.add((listener, hostname))
            self._hosts_under.update((listener, name) for name in covering(hostname))

    def wanted(self, listener: int, names: Sequence[str], matches: int) -> int:
        """Return the number of entries of a route with `matches`, at these hostnames of a listener."""
        return sum(self._wanted(listener, name, names, matches) for name in names)

    def attach(self, listener: int, names: Sequence[str], matches: int) -> None:
        """Take a route over."""
        self.remaining -= self.wanted(listener, names, matches)
        for name in names:
            self.open(listener, name)
            self._matches[listener, name] += matches

    def _wanted(self, listener: int, name: str, names: Sequence[str], matches: int) -> int:
        """Count the matches of this route at all hosts of a name, and the matches of other routes at a new host."""
        new = [other for other in names if (listener, other) not in self._hosts and covers(name, other)]
        hosts = self._hosts_under[listener, name] + len(new)
        others = 0 if (listener, name) in self._hosts else sum(self._matches[listener, t] for t in covering(name))
        return matches * hosts + others
