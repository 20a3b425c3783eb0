"""The claims of one address, indexed by owner and by port.

A port of an address that a thousand Services share is checked without going through all of their claims. Not here:
reading them (`claim_files`), and who may have what (`conflicts`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence

from locallb.ledger.claims import ClaimFile
from locallb.model.identities import Owner
from locallb.model.snapshot import MappedPort, Place

_Held = Place | None
"""Place of a claim; None for the whole address, which an unreadable claim holds as well."""


class AddressClaims:
    """Knows what was found by owner and by port."""

    def __init__(self, entries: Sequence[ClaimFile]) -> None:
        self.entries = entries
        self._owners: dict[Owner, list[ClaimFile]] = defaultdict(list)
        self._places: dict[_Held, list[int]] = defaultdict(list)
        for number, entry in enumerate(entries):
            self._owners[entry.claim.owner].append(entry)
            for place in _places(entry.claim.ports):
                self._places[place].append(number)

    def of(self, owner: Owner) -> Sequence[ClaimFile]:
        """Return what `owner` has."""
        return self._owners.get(owner, ())

    def in_the_way(self, ports: Collection[MappedPort]) -> Sequence[ClaimFile]:
        """Return claims that may conflict with `ports`, or with the whole address if there are none."""
        if not ports:
            return self.entries
        places = (None, *_places(ports))
        numbers = {number for place in places for number in self._places.get(place, ())}
        return [self.entries[number] for number in sorted(numbers)]


def _places(ports: Collection[MappedPort]) -> Sequence[_Held]:
    return [port.place for port in ports] or [None]
