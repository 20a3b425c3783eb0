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
_Columns: TypeAlias = tuple[tuple[object, ...], ...]
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
    _columns: _Columns = ()
    _results: tuple[_Made, ...] = ()
    """The results of the last rows."""
    _is_outdated: bool = False
    """Whether they are of another frame."""

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
        """Make everything again if the frame changed: inputs of `make` besides `given`."""
        if frame != self._frame:
            self._frame, self._before, self._now, self._is_outdated = frame, {}, {}, True

    def forget(self, key: Hashable) -> None:
        self._now.pop(key, None)
        self._before.pop(key, None)

    def each(self, make: Callable[..., _Made], *columns: Iterable[object]) -> tuple[_Made, ...]:
        """Return the result of `make` for each row of `columns`, and forget all other rows. Raises as `make` does.

        A row is known again by the identity of its objects: for those of which others may be equal and mean something
        else (1 and true in a document), are large and never equal, or have no name. The identical tuple is returned
        where all results are equal to the former ones.
        """
        now = tuple(map(tuple, columns))
        where = None if self._is_outdated else _replaced_rows(self._columns, now)
        if where is None:
            self._results = self._made(make, self._columns, self._results, now)
        elif where:
            former = tuple(map(self._results.__getitem__, where))
            made = self._made(make, _rows_at(where, self._columns), former, _rows_at(where, now))
            if made is not former:
                results = list(self._results)
                for place, result in zip(where, made, strict=True):
                    results[place] = result
                self._results = tuple(results)
        self._columns, self._is_outdated = now, False
        return self._results

    def _made(
        self, make: Callable[..., _Made], before: _Columns, former: tuple[_Made, ...], now: _Columns
    ) -> tuple[_Made, ...]:
        """Return the results of rows, of which these were `former` ones: the identical tuple if all are equal."""
        names = _names(now)
        existing = {} if self._is_outdated else dict(zip(_names(before), former, strict=True))
        for name, row in zip(names, zip(*now, strict=True), strict=True):
            if name not in existing:
                existing[name] = make(*row)
        made = tuple(map(existing.__getitem__, names))
        if len(made) != len(former):
            return made
        made = tuple(map(_former_if_equal, former, made))
        return made if any(map(is_not, made, former)) else former

    def rows(self, key: Hashable, *frame: object) -> AnyMemo:
        """Return what caches `each` for one purpose within a frame."""
        of_any: AnyMemo = self
        rows: AnyMemo = of_any.of(key, Memo)
        rows.within(*frame)
        return rows

    def evict_unused(self) -> None:
        """Forget what wasn't asked for since the last time."""
        self._before, self._now = self._now, {}


AnyMemo: TypeAlias = Memo[Any]
"""A memo of several types of results: each key has one type, known to the caller."""


def few_replaced(before: Sequence[object], now: Sequence[object]) -> Sequence[int] | None:
    """Return the indexes of replaced objects; None if the lengths differ, or more than `_FEW` were replaced.

    For an index of so many objects that replacing a few is far cheaper than making it again.
    """
    if before is now:
        return []
    if len(before) != len(now):
        return None
    where = list(compress(count(), map(is_not, before, now)))
    return None if len(where) > _FEW else where


def _replaced_rows(before: _Columns, now: _Columns) -> Sequence[int] | None:
    """Return the indexes of rows with replaced objects; None if they aren't few."""
    if len(before) != len(now):
        return None
    where: set[int] = set()
    for one, other in zip(before, now, strict=True):
        replaced = few_replaced(one, other)
        if replaced is None:
            return None
        where.update(replaced)
    return sorted(where)


def _rows_at(where: Iterable[int], columns: _Columns) -> _Columns:
    return tuple(tuple(map(column.__getitem__, where)) for column in columns)


def _names(columns: _Columns) -> list[tuple[int, ...]]:
    """Name rows by the identity of their objects, which live as long as the columns do."""
    return [*zip(*(map(id, column) for column in columns), strict=True)]


def _former_if_equal(former: _Made, made: _Made) -> _Made:
    return former if former is not made and former == made else made
