"""How many addresses of each pool remain free once a plan is applied."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from collections.abc import Set as AbstractSet

from msgspec import Struct

from locallb.config.candidates import Candidates, candidates, possible
from locallb.config.settings import Settings
from locallb.model.identities import Family, IPAddress
from locallb.model.snapshot import Snapshot
from locallb.report.sides import Side


class Room(Struct, frozen=True):
    """One family of one pool: `size` addresses, of which our Services have `used`, and `free` are available.

    The rest is held by others, kept by a pin, or not usable on this host.
    """

    pool: str
    family: Family
    size: int
    used: int
    free: int

    @property
    def unavailable(self) -> int:
        """The number of addresses that others hold, a pin keeps, or this host hasn't."""
        return self.size - self.used - self.free


def rooms(side: Side, snapshot: Snapshot, settings: Settings) -> tuple[Room, ...]:
    """Count the addresses of every pool once all is as on `side`; `snapshot` knows what others hold."""
    return rooms_for({a for balancer in side.balancers.values() for a in balancer.addresses}, snapshot, settings)


def rooms_for(used: AbstractSet[IPAddress], snapshot: Snapshot, settings: Settings) -> tuple[Room, ...]:
    """Count the addresses of every pool, with the `used` ones of our Services."""
    claimed = {*used, *_not_free(snapshot, settings)}
    return tuple(
        _room(pool.name, usable, possible(pool, family, snapshot.host), used, claimed)
        for pool in settings.pools
        for family in Family
        if (usable := candidates(pool, family)).size
    )


def _room(
    name: str, candidates: Candidates, here: Candidates, used: Collection[IPAddress], claimed: Collection[IPAddress]
) -> Room:
    free = here.size - sum(address in here for address in claimed)
    return Room(name, candidates.family, candidates.size, sum(address in candidates for address in used), free)


def _not_free(snapshot: Snapshot, settings: Settings) -> Iterator[IPAddress]:
    """Return the addresses that others hold or that are reserved; ours that no Service has any more become free."""
    yield from (claim.address for claim in snapshot.claims if claim.owner.home != snapshot.home)
    yield from _flat(settings.pins.values())
    yield from _flat(node.addresses for node in snapshot.nodes)
    yield from (socket.address for socket in snapshot.host.sockets)


def _flat(groups: Iterable[Iterable[IPAddress]]) -> Iterator[IPAddress]:
    return (address for addresses in groups for address in addresses)
