"""Caches of pure computations, by identity or equality of their inputs. They save work and decide nothing.

One law holds for all of them: with a cache and without one the result is the same. Not here: what was applied to the
world, and what others reported about it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from itertools import chain, compress, count, repeat
from operator import is_, is_not
from typing import Any, Generic, TypeAlias, TypeVar

from msgspec import Struct, field

_Made = TypeVar("_Made")
_Given = tuple[Any, ...]
_FEW = 10
"""Rows that are looked for one by one."""


class Memo(Struct, Generic[_Made]):
    """Knows by key what a pure function returned last, and from which arguments.

    Equal arguments: the function isn't called. An equal result: the former object is returned, so that all that depend
    on it find identical arguments. What isn't asked for until `evict_unused` is forgotten. For one thread and one
    purpose; nobody may change arguments or results.
    """

    _frame: _Given = ()
    _before: dict[Hashable, tuple[_Given, _Made]] = field(default_factory=dict)
    _now: dict[Hashable, tuple[_Given, _Made]] = field(default_factory=dict)

    def of(self, key: Hashable, make: Callable[..., _Made], *given: object) -> _Made:
        """Return the result of `make` for `given`, one purpose a key. Raises as `make` does."""
        known = self._before.pop(key, None) or self._now.get(key)
        if known is None:
            known = given, make(*given)
        elif known[0] == given:  # identical arguments need not be compared in depth the next time
            known = given, known[1]
        else:
            made = make(*given)
            known = given, known[1] if known[1] == made else made
        self._now[key] = known
        return known[1]

    def within(self, *frame: object) -> None:
        """Forget everything that was made within another frame: whatever `make` uses besides `given`."""
        if frame != self._frame:
            self._frame, self._before, self._now = frame, {}, {}

    def forget(self, key: Hashable) -> None:
        """Forget what was made for `key`."""
        self._now.pop(key, None)
        self._before.pop(key, None)

    def keep(self, keys: Iterable[Hashable], many: int) -> None:
        """Forget what was made for others than so `many` keys; for who asks of those only that may be different."""
        if len(self._now) > many:
            self._now = {key: self._now[key] for key in keys if key in self._now}

    def evict_unused(self) -> None:
        """Forget what wasn't asked for since the last time."""
        self._before, self._now = self._now, {}


AnyMemo: TypeAlias = Memo[Any]
"""One for results of several types: under each key stands one type, which the caller names."""


class RowCache(Struct, Generic[_Made]):
    """Knows what was made of each of many objects, of which the most are the very same ones the next time.

    Those cost nearly nothing: where others stand is found in one go, and only these are looked at one by one. With more
    or fewer than before, that is all between where the same stand at the beginning and at the end. For one thread and
    one purpose.
    """

    _frame: _Given = ()
    _given: tuple[_Given, ...] = ()
    """Kept, so that the id of each stays its own."""
    _made: tuple[_Made, ...] = ()

    def of(self, make: Callable[..., _Made], *columns: Iterable[object]) -> tuple[_Made, ...]:
        """Return what `make` makes of each row of `columns`, as it was for rows of the very same objects.

        Raises as `make` does. What nobody came with the last time is forgotten.
        """
        given = tuple(map(tuple, columns))
        before = self._given or tuple(() for _ in given)
        if all(map(is_, given, before)):
            return self._made
        if len(given[0]) == len(self._made):
            if not (where := _places(given, before)):
                return self._made
            made, old = list(self._made), [self._made[place] for place in where]
            then = tuple([column[place] for place in where] for column in before)  # who moved stood there
            for place, one in zip(where, _made_of(make, _rows(given, where), then, old), strict=True):
                made[place] = one
        else:
            size, was = len(given[0]), len(self._made)
            head = min(map(_alike, given, before))
            pairs = zip(given, before, strict=True)
            tail = min(_alike(now[head:], then[head:], at_end=True) for now, then in pairs)
            new = _made_of(make, _rows(given, range(head, size - tail)), before, self._made)
            made = [*self._made[:head], *new, *self._made[was - tail :]]
        self._given, self._made = given, tuple(made)
        return self._made

    def within(self, *frame: object) -> None:
        """Forget everything that was made within another frame: whatever `make` uses besides its row."""
        if frame != self._frame:
            self._frame, self._given, self._made = frame, (), ()


class BlockCache(Struct, Generic[_Made]):
    """Knows what was made of each member of many blocks, of which the most are the very same ones the next time.

    Of another block only those members are new that stood in none of the blocks that it may have come from. For one
    thread and one purpose.
    """

    _blocks: tuple[Sequence[object], ...] = ()
    """Kept, so that the id of each, and of its members, stays its own."""
    _made: tuple[tuple[_Made, ...], ...] = ()

    def of(self, make: Callable[[Any], _Made], blocks: Iterable[Sequence[object]]) -> tuple[tuple[_Made, ...], ...]:
        """Return what `make` makes of each member of each block, as it was for the very same member.

        Raises as `make` does. What nobody came with the last time is forgotten.
        """
        blocks = tuple(blocks)
        known = dict(zip(map(id, self._blocks), self._made, strict=True))
        left = known.keys() - set(map(id, blocks))
        replaced = [block for block in self._blocks if id(block) in left]
        members = {id(member): made for block in replaced for member, made in zip(block, known[id(block)], strict=True)}

        def made_of(block: Sequence[object]) -> tuple[_Made, ...]:
            return tuple(members[id(member)] if id(member) in members else make(member) for member in block)

        made = tuple(known[id(block)] if id(block) in known else made_of(block) for block in blocks)
        self._blocks, self._made = blocks, made
        return made


def _made_of(
    make: Callable[..., _Made], rows: Sequence[_Given], before: Sequence[Sequence[object]], made: Sequence[_Made]
) -> Iterator[_Made]:
    """Make each row that wasn't there before, one that stands there twice once."""
    known: dict[tuple[int, ...], _Made] = {}
    if not _are_new(rows, before):
        known = dict(zip(zip(*(map(id, then) for then in before), strict=True), made, strict=True))
    for row in rows:
        name = tuple(map(id, row))
        if name not in known:
            known[name] = make(*row)
        yield known[name]


def _are_new(rows: Iterable[_Given], before: Sequence[Sequence[object]]) -> bool:
    """Return whether each has an object that wasn't there in any row before."""
    left = list(rows)
    for number, then in enumerate(before):
        if not left:
            break
        left = _with_one_of(then, number, left)
    return not left


def _with_one_of(then: Sequence[object], number: int, rows: list[_Given]) -> list[_Given]:
    """Return the rows with one of `then` in this column."""
    if len(rows) <= _FEW:
        return [row for row in rows if any(map(is_, then, repeat(row[number])))]
    ids = frozenset(map(id, then))
    return [row for row in rows if id(row[number]) in ids]


def _rows(given: tuple[_Given, ...], where: Iterable[int]) -> Sequence[_Given]:
    """Return the rows at these places."""
    return [tuple(column[place] for column in given) for place in where]


def _places(given: tuple[_Given, ...], before: tuple[_Given, ...]) -> Sequence[int]:
    """Return in which rows another object stands than before, of as many."""
    return sorted({*chain.from_iterable(map(_others, before, given))})


def _others(before: Iterable[object], now: Iterable[object]) -> Iterator[int]:
    """Return where another object stands now than before, of as many."""
    return compress(count(), map(is_not, before, now))


def replaced(before: Sequence[object], now: Sequence[object]) -> Sequence[int] | None:
    """Return where another object stands now than before; None where there are more or fewer of them."""
    if before is now:
        return []
    return list(_others(before, now)) if len(before) == len(now) else None


def few_replaced(before: Sequence[object], now: Sequence[object], most: int = _FEW) -> Sequence[int] | None:
    """Return the same where those are few enough to be looked at one by one; None as well where there are more."""
    where = replaced(before, now)
    return None if where is None or len(where) > most else where


def _alike(some: Sequence[object], others: Sequence[object], *, at_end: bool = False) -> int:
    """Count the very same objects with which both begin, or end."""
    pair = (reversed(some), reversed(others)) if at_end else (some, others)
    return next(compress(count(), map(is_not, *pair)), min(len(some), len(others)))
