"""The scope of an update: everything, or some root resources with all that is below them.

Inside the scope: registered, compared, deleted when absent. Outside: carried over as it is, still usable as parent and
dependency. The Stack and the providers belong to every scope; outputs of the Stack that
a program doesn't export stay unless the scope is everything.
"""

from collections.abc import Iterable

from msgspec import Struct


class Scope(Struct, frozen=True):
    """The URNs of the root resources that an update is about; None stands for everything."""

    roots: frozenset[str] | None = None

    @property
    def is_full(self) -> bool:
        """Whether this is everything."""
        return self.roots is None

    def covers(self, root: str) -> bool:
        """Return whether a root resource is inside."""
        return self.roots is None or root in self.roots


EVERYTHING = Scope()


def only(roots: Iterable[str]) -> Scope:
    """Make a scope of some root resources, by URN (see `urns.root_urn`)."""
    return Scope(frozenset(roots))
