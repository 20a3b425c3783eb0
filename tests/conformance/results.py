"""What became of the suite's tests, read from what it prints. Pure. Not here: the report, which the suite writes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

_ENDED = re.compile(r"^    --- (PASS|FAIL|SKIP): TestConformance/(\S+) \(([\d.]+)s\)$", re.MULTILINE)


@dataclass(frozen=True)
class Result:
    """How one test ended."""

    name: str
    state: str
    seconds: float


def results(printed: str) -> Iterator[Result]:
    """Return how each test ended, in the order of the suite."""
    return (Result(name, state, float(seconds)) for state, name, seconds in _ENDED.findall(printed))


def lines(some: Iterable[Result]) -> Iterator[str]:
    """Tell of each that ran, and how many there are of each kind."""
    listed = list(some)
    yield from (f"{one.state} {one.seconds:7.1f} s {one.name}" for one in listed if one.state != "SKIP")
    counts = Counter(one.state for one in listed)
    yield f"{counts['PASS']} passed, {counts['FAIL']} failed, {counts['SKIP']} skipped by the suite"
