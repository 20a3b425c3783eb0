"""Clusters that are known not to answer: no other thread asks them until they do.

The thread that follows a cluster notices first; every other one would wait for the same timeout. Not here: how it is
noticed.
"""

from __future__ import annotations

from collections.abc import Mapping

from locallb.model.snapshot import Access


class UnreachableClusters:
    """Which clusters don't answer, and why. Safe to use from several threads."""

    def __init__(self) -> None:
        self._why: Mapping[Access, str] = {}

    def put(self, why: Mapping[Access, str]) -> None:
        """Take these for silent, each with the sentence that says why, and no others."""
        self._why = dict(why)

    def why(self, access: Access) -> str:
        """Return why a cluster isn't asked; empty if it is."""
        return self._why.get(access, "")


UNREACHABLE = UnreachableClusters()
"""Of this process."""
