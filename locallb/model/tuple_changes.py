"""Finds which objects came and went between two tuples, of which most have the very same ones.

By identity, at the cost of a comparison of pointers for each object that stayed. Not here: what is made of each object
(`memory`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import compress, count
from operator import is_not
from typing import TypeVar

_Thing = TypeVar("_Thing")


def came_and_went(before: Sequence[_Thing], now: Sequence[_Thing]) -> tuple[Sequence[_Thing], Sequence[_Thing]]:
    """Return the objects that only `now` has, and those that only `before` had; one that moved is neither."""
    if before is now:
        return (), ()
    most = min(len(before), len(now))
    head = next(compress(count(), map(is_not, before, now)), most)
    tail = next(compress(count(), map(is_not, reversed(before), reversed(now))), most)
    tail = min(tail, most - head)
    old, new = before[head : len(before) - tail], now[head : len(now) - tail]
    return _beyond(new, old), _beyond(old, new)


def _beyond(some: Sequence[_Thing], others: Sequence[_Thing]) -> Sequence[_Thing]:
    """Return those of `some` that `others` don't have, or not as often."""
    if not others:
        return some
    left = Counter(map(id, others))
    beyond = []
    for one in some:
        if left[id(one)]:
            left[id(one)] -= 1
        else:
            beyond.append(one)
    return beyond
