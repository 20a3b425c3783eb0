"""What became of the suite's tests, and why, read from what it prints. Pure.

Go prints what tests and their parts say as they say it, with a heading wherever another begins, and at the end how each
of them ended. Not here: the report, which the suite writes, and running it.
"""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

ROOT = "TestConformance"
MAX = 60
"""Lines that are shown of one test, one log."""
_WIDEST = 600
"""Characters of each."""
_ENDED = re.compile(rf"^ *--- (PASS|FAIL|SKIP): {ROOT}/(\S+) \(([\d.]+)s\)$", re.MULTILINE)
_HEADING = re.compile(r"=== (?:RUN|PAUSE|CONT|NAME) +(\S+)$")
_OUTSIDE = "Error Trace:"
"""What is in the text of a failed assertion."""
_SAID_AT = re.compile(r" \d{4}-\d\d-\d\dT(\d\d:\d\d:\d\d\.\d{3})\d*Z")
_CLEARED = re.compile(r"^ +apply\.go:\d+:.*: Deleting ")
_WATCHED_AT = re.compile(r"\d\d:\d\d:\d\d\.\d{3} ")


@dataclass(frozen=True)
class Result:
    """How one test ended."""

    name: str
    state: str
    seconds: float


@dataclass(frozen=True)
class Run:
    """One run of the suite: its exit code, and what it printed."""

    code: int
    printed: str

    @cached_property
    def results(self) -> Sequence[Result]:
        """How each test ended, in the order of the suite; its parts are left out."""
        return [one for one in self._ended if "/" not in one.name]

    @cached_property
    def failed(self) -> Sequence[str]:
        return [one.name for one in self.results if one.state == "FAIL"]

    @cached_property
    def failure(self) -> str:
        """Why it isn't a run of tests that passed or failed; empty if it is."""
        if self.code not in {0, 1} or (self.code and not self.failed):
            return f"it ended with exit code {self.code}, and {len(self.failed)} tests failed"
        if all(one.state == "SKIP" for one in self.results):
            return "it ran no test"
        if any(_OUTSIDE in line for name, line in self._stated() if name == ROOT):
            return "something failed outside its tests"
        return ""

    def why(self, test: str) -> Iterator[str]:
        """Return the end of what a failed test said, and its parts that failed."""
        failed = {f"{ROOT}/{one.name}" for one in self._ended if one.state == "FAIL" and _is_of(one.name, test)}
        return end(_that_matter(line for name, line in self._stated() if name in failed))

    def ending(self) -> Iterator[str]:
        """Return the end of all that was said."""
        return end(_that_matter(line for _, line in self._stated()))

    @cached_property
    def _ended(self) -> Sequence[Result]:
        return [Result(name, state, float(seconds)) for state, name, seconds in _ENDED.findall(self.printed)]

    def _stated(self) -> Iterator[tuple[str, str]]:
        """Return each line with the test that said it, or the part of one."""
        name = ""
        for line in self.printed.partition(f"\n--- FAIL: {ROOT} (")[0].splitlines():
            if heading := _HEADING.match(line):
                name = heading[1]
            else:
                yield name, line


def _is_of(name: str, test: str) -> bool:
    return name == test or name.startswith(f"{test}/")


def _that_matter(some: Iterable[str]) -> Iterator[str]:
    """Return lines without what is cleared away, and what differs from those before by nothing but its time.

    The suite tells of each look at an object that isn't yet as it should be.
    """
    recent: deque[str] = deque(maxlen=4)
    for line in some:
        if (terms := _SAID_AT.sub("", line)) not in recent and not _CLEARED.search(line):
            recent.append(terms)
            yield line


def lines(some: Iterable[Result]) -> Iterator[str]:
    """Tell of each that ran, and how many there are of each kind."""
    listed = list(some)
    yield from (f"{one.state} {one.seconds:7.1f} s {one.name}" for one in listed if one.state != "SKIP")
    counts = Counter(one.state for one in listed)
    yield f"{counts['PASS']} passed, {counts['FAIL']} failed, {counts['SKIP']} skipped by the suite"


def end(all_of_it: Iterable[str]) -> Iterator[str]:
    """Return the last lines of a log, and how many came before."""
    listed = list(all_of_it)
    if len(listed) > MAX:
        yield f"({len(listed) - MAX} lines before)"
    yield from (line[:_WIDEST] for line in listed[-MAX:])


def meanwhile(stated: Sequence[str], watched: str) -> Iterator[str]:
    """Return the end of what the watch, whose clock is that of UTC as well, printed while the suite said something."""
    times = [found[1] for line in stated if (found := _SAID_AT.search(line))]
    dated = [line for line in watched.splitlines() if _WATCHED_AT.match(line)]
    return end(line for line in dated if times and min(times) <= line[:12] <= max(times))


def until_crash(watched: str) -> Sequence[str]:
    """Return what the watch printed, of a crash the thread that made it: a hundred others come after that."""
    before, crash, after = watched.partition("Fatal Python error: ")
    return (before + crash + after.partition("\n\nThread ")[0]).splitlines()


def named(first: Run, retry: Iterable[tuple[str, Run]]) -> Iterator[str]:
    """Name what failed, as tests/tiers.sh collects it: in one run of two, or in both."""
    repeated = dict(retry)
    for test in first.failed:
        is_healthy = test in repeated and not repeated[test].failure and not repeated[test].failed
        yield f"{'flaky' if is_healthy else 'failed'}: tests/conformance::{test}"
