"""What was made of objects, for whoever comes back with the very same ones. It saves work and decides nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar, cast

_Made = TypeVar("_Made")


@dataclass(slots=True)
class IdentityCache:
    """Goes by the object itself, not by what it equals, so nobody may change it. For one thread and one purpose."""

    _before: dict[int, tuple[object, object]] = field(default_factory=dict)
    _now: dict[int, tuple[object, object]] = field(default_factory=dict)

    def of(self, one: object, make: Callable[[], _Made]) -> _Made:
        """Return what `make` made of `one` when it was asked first. Raises as `make` does."""
        known = self._before.get(id(one)) or (one, make())  # kept with it, so that its id stays its own
        self._now[id(one)] = known
        return cast("_Made", known[1])

    def turn(self) -> None:
        """Forget what wasn't asked for since the last turn."""
        self._before, self._now = self._now, {}
