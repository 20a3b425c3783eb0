"""Interval arithmetic on sets of numbers: addresses and networks cost the same whether they are 1 or 2**128.

Pure. Not here: the meaning of the numbers.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from operator import itemgetter

Span = tuple[int, int]
"""Numbers from the first to the last, both included."""


def merge(spans: Iterable[Span]) -> list[Span]:
    """Join spans that overlap or touch; the result is sorted."""
    merged: list[Span] = []
    for first, last in sorted(spans):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = merged[-1][0], max(last, merged[-1][1])
        else:
            merged.append((first, last))
    return merged


def subtract(spans: Iterable[Span], holes: Iterable[Span]) -> list[Span]:
    """Take `holes` out of `spans`; the result is sorted and disjoint."""
    remaining: list[Span] = []
    gaps = merge(holes)
    for first, last in merge(spans):
        start = first
        for hole in gaps[bisect_left(gaps, first, key=itemgetter(1)) :]:
            if hole[0] > last:
                break
            if start < hole[0]:
                remaining.append((start, hole[0] - 1))
            start = hole[1] + 1
        if start <= last:
            remaining.append((start, last))
    return remaining


def intersect(spans: Iterable[Span], others: Iterable[Span]) -> list[Span]:
    """Return what both have; the result is sorted and disjoint."""
    common: list[Span] = []
    bounds = merge(others)
    for first, last in merge(spans):
        for other in bounds[bisect_left(bounds, first, key=itemgetter(1)) :]:
            if other[0] > last:
                break
            common.append((max(first, other[0]), min(last, other[1])))
    return common
