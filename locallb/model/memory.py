"""The cache of pure computations. It saves work and decides nothing: results are the same without it.

Not here: applied changes, and observed facts.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import compress, count
from operator import is_not
from typing import Any, Generic, TypeAlias, TypeVar

from msgspec import Struct, field

_Made = TypeVar("_Made")
_Given = tuple[Any, ...]
_FEW = 10


class Memo(Struct, Generic[_Made]):
    """Caches the last result of a pure function by key, with its arguments.

    Equal arguments: the function isn't called. An equal result: the former object is returned, so that dependent
    functions find identical arguments. Entries unused until `evict_unused` are dropped. For one thread and one
    purpose; arguments and results must not be changed.
    """

    _frame: _Given = ()
    _before: dict[Hashable, tuple[_Given, _Made]] = field(default_factory=dict)
    _now: dict[Hashable, tuple[_Given, _Made]] = field(default_factory=dict)

    def of(self, key: Hashable, make: Callable[..., _Made], *given: object) -> _Made:
        """Return the result of `make` for `given`, one purpose a key. Raises as `make` does."""
        existing = self._before.pop(key, None) or self._now.get(key)
        if existing is None:
            existing = given, make(*given)
        elif existing[0] == given:  # identical arguments need not be compared in depth the next time
            existing = given, existing[1]
        else:
            made = make(*given)
            existing = given, existing[1] if existing[1] == made else made
        self._now[key] = existing
        return existing[1]

    def within(self, *frame: object) -> None:
        """Clear the cache if the frame changed: inputs of `make` besides `given`."""
        if frame != self._frame:
            self._frame, self._before, self._now = frame, {}, {}

    def forget(self, key: Hashable) -> None:
        self._now.pop(key, None)
        self._before.pop(key, None)

    def each(self, make: Callable[..., _Made], *columns: Iterable[object]) -> tuple[_Made, ...]:
        """Return the result of `make` for each row of `columns`, and forget all other rows. Raises as `make` does.

        A row is known again by the identity of its objects: for those of which others may be equal and mean something
        else (1 and true in a document), are large and never equal, or have no name.
        """
        held = [tuple(column) for column in columns]
        names = [*zip(*(map(id, column) for column in held), strict=True)]
        rows, before = dict(zip(names, zip(*held, strict=True), strict=True)), self._before
        existing: dict[Hashable, tuple[_Given, _Made]] = {
            name: before.get(name) or (row, make(*row)) for name, row in rows.items()
        }
        self._before = existing
        return tuple([existing[name][1] for name in names])

    def evict_unused(self) -> None:
        """Forget what wasn't asked for since the last time."""
        self._before, self._now = self._now, {}


AnyMemo: TypeAlias = Memo[Any]
"""A memo of several types of results: each key has one type, known to the caller."""


def few_replaced(before: Sequence[object], now: Sequence[object]) -> Sequence[int] | None:
    """Return the indexes of replaced objects; None if the lengths differ, or more than `_FEW` were replaced.

    For an index of so many objects that replacing a few is far cheaper than making it again.
    """
    if len(before) != len(now):
        return None
    where = list(compress(count(), map(is_not, before, now)))
    return None if len(where) > _FEW else where
