"""Clusters that are known not to answer: no other thread sends requests until they do.

The thread that follows a cluster notices first; every other one would wait for the same timeout. Not here: how it is
noticed.
"""

from __future__ import annotations

from collections.abc import Mapping

from locallb.model.snapshot import Access


class UnreachableClusters:
    """Unreachable clusters, with the reason. Safe to use from several threads."""

    def __init__(self) -> None:
        self._why: Mapping[Access, str] = {}

    def put(self, why: Mapping[Access, str]) -> None:
        """Set the unreachable clusters, each with its reason."""
        self._why = dict(why)

    def why(self, access: Access) -> str:
        """Return why a cluster isn't asked; empty if it is."""
        return self._why.get(access, "")


UNREACHABLE = UnreachableClusters()
"""Of this process."""
