"""What was made of something, for whoever comes back with the same. It saves work and decides nothing.

Everything that is planned and read again and again is remembered like this, and one law holds of all of it: with a
memory and without one the outcome is the same. Not here: what was applied to the world, and what others told of it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from operator import eq
from typing import Any, Generic, TypeVar

_Made = TypeVar("_Made")
_Item = TypeVar("_Item")
_Given = tuple[Any, ...]


@dataclass(slots=True)
class Memory(Generic[_Made]):
    """Knows by key what was made, and of what. Nobody may change either. For one thread and one purpose."""

    same: Callable[[Any, Any], bool] = eq
    """Returns whether the same comes of two tuples of arguments; members of equal tuples are one object or equal."""
    _frame: _Given = ()
    _before: dict[Hashable, tuple[_Given, _Made]] = field(default_factory=dict)
    _now: dict[Hashable, tuple[_Given, _Made]] = field(default_factory=dict)

    def of(self, key: Hashable, make: Callable[..., _Made], *given: object) -> _Made:
        """Return what `make` makes of `given`, as it was for `key` if that was of the same. Raises as `make` does."""
        known = self._now.get(key) or self._before.get(key)
        if known is None or not self.same(known[0], given):
            known = given, make(*given)
        elif self.same is eq:  # whoever comes with this very one again need not be compared in depth
            known = given, known[1]
        self._now[key] = known
        return known[1]

    def of_this(self, this: object, make: Callable[[], _Made]) -> _Made:
        """Return what `make` made of this very object, not of an equal one. Raises as `make` does."""
        return self.of(id(this), lambda _this: make(), this)  # kept with it, so that its id stays its own

    def given(self, key: Hashable) -> _Given:
        """Return what was made last for `key` was made of; empty if nothing was."""
        return (self._now.get(key) or self._before.get(key) or ((),))[0]

    def within(self, *frame: object) -> None:
        """Forget everything that was made within another frame: whatever `make` uses besides `given`."""
        if frame != self._frame:
            self._frame, self._before, self._now = frame, {}, {}

    def forget(self, key: Hashable) -> None:
        """Forget what was made for `key`."""
        self._now.pop(key, None)
        self._before.pop(key, None)

    def evict_unused(self) -> None:
        """Forget what wasn't asked for since the last time."""
        self._before, self._now = self._now, {}


@dataclass(slots=True)
class Each(Generic[_Item, _Made]):
    """Knows what was made of each of many objects, of which the most are the very same ones the next time.

    Those cost nearly nothing: they are told apart by identity, all in one go. For one thread and one purpose.
    """

    _items: tuple[_Item, ...] = ()
    """Kept, so that the id of each stays its own."""
    _made: dict[int, _Made] = field(default_factory=dict)

    def of(self, items: Iterable[_Item], make: Callable[[_Item], _Made]) -> Sequence[_Made]:
        """Return what `make` makes of each, as it was for those that were among the last `items`; raises as it does."""
        now = tuple(items)
        ids = tuple(map(id, now))
        new = set(ids) - self._made.keys()
        known = self._made | {id(item): make(item) for item in now if id(item) in new} if new else self._made
        made = tuple(map(known.__getitem__, ids))
        self._items, self._made = now, dict(zip(ids, made, strict=True))
        return made
