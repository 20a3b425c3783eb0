"""How many more proxies this host can carry, and which limit ends it: the smallest of several budgets.

Pure. Not here: sharing the inotify budget among Services (`planning.proxies.capacity`), and how limits are read.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from locallb.config.candidates import candidates, possible
from locallb.config.settings import Pool
from locallb.envoy import watches
from locallb.model.formatting import counted
from locallb.model.identities import Family
from locallb.model.objects import Discovery
from locallb.model.snapshot import Claim, HostFacts

PROXY_MEMORY = 16 << 20
"""Bytes of its own that an idle proxy takes."""
PROXY_TASKS = 8
"""Threads of a proxy, with one to spare."""
TIGHT = 8
"""Proxies below which room is scarce."""
_INSTANCES = watches(Discovery.STATIC, 1)


class Limits(Struct, frozen=True):
    """What bounds the number of proxies; each is what is left for new ones."""

    watches: int
    """inotify instances of this user that nobody uses, our proxies' included in what is used."""
    watch_limit: int
    memory: int
    """Bytes that the kernel calls available, within this cgroup."""
    tasks: int
    """Processes and threads that this user may still start, within this cgroup."""
    addresses: int
    """Free addresses of the stack's pools that this host can bind."""
    files: int
    """Open files that a process may have."""
    watch_holders: tuple[str, ...] = ()
    """Which processes have how many inotify instances, the most first."""


class Headroom(Struct, frozen=True):
    """How many proxies still fit, and why no more."""

    proxies: int
    limited_by: str
    sentence: str
    remedy: str

    @property
    def is_tight(self) -> bool:
        """Only a few more fit."""
        return self.proxies < TIGHT


def headroom(limits: Limits) -> Headroom:
    """Find the budget that ends first."""
    budgets = (
        (
            limits.watches // _INSTANCES,
            "inotify instances",
            f"{limits.watches} of {limits.watch_limit} left",
            "`sudo locallb host setup --yes` raises the limit, or end other programs that watch files"
            + (f" (most: {', '.join(limits.watch_holders)})" if limits.watch_holders else ""),
        ),
        (limits.addresses, "addresses", f"{limits.addresses} left", "add addresses to local-lb:pools"),
        (
            limits.memory // PROXY_MEMORY,
            "memory",
            f"{limits.memory >> 20} MiB left",
            "end other programs, or give the container more memory",
        ),
        (
            limits.tasks // PROXY_TASKS,
            "processes",
            f"{limits.tasks} threads left",
            "raise `ulimit -u` or the container's pids limit",
        ),
    )
    room, name, why, remedy = min(budgets, key=lambda budget: budget[0])
    fit = counted(room, "more proxy", "more proxies")
    return Headroom(room, name, f"room for {fit}; what ends it: {name} ({why})", remedy)


def free_addresses(pools: Iterable[Pool], host: HostFacts, claims: Iterable[Claim]) -> int:
    """Count the addresses that Services could still get: IPv4 where there is any such pool, otherwise IPv6."""
    listed = tuple(pools)
    claimed = {*(claim.address for claim in claims), *(socket.address for socket in host.sockets)}
    counts = []
    for family in Family:
        shelves = [possible(pool, family, host) for pool in listed]
        counts.append(sum(shelf.size - sum(address in shelf for address in claimed) for shelf in shelves))
        if any(candidates(pool, family).size for pool in listed):
            break
    return counts[-1]
