"""The free addresses among a pool's candidates, found next to a preferred one. Not here: holders of others."""

from __future__ import annotations

from locallb.config.candidates import Candidates
from locallb.model.identities import IPAddress


class Slots:
    """Free candidates. Taking and finding are near constant time, however full or large the pool is.

    Each taken number points to a later one that may be free; `first_free` follows and shortens these paths.
    """

    def __init__(self, candidates: Candidates) -> None:
        self._candidates = candidates
        self._later: dict[int, int] = {}

    def take(self, address: IPAddress) -> bool:
        """Take `address`; return whether it was a free candidate."""
        number = self._candidates.number(address)
        if number is None or number in self._later:
            return False
        self._later[number] = number + 1
        return True

    def first_free(self, preferred: int) -> IPAddress | None:
        """Return the first free candidate from `preferred` (modulo size) on, going round; None if all are taken."""
        size = self._candidates.size
        if len(self._later) >= size:
            return None
        number = self._follow(preferred % size)
        return self._candidates[number if number < size else self._follow(0)]

    def _follow(self, start: int) -> int:
        end = start
        while end in self._later:
            end = self._later[end]
        while start != end:
            self._later[start], start = end, self._later[start]
        return end
