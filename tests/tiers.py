"""Which tier runs a test, and as whom: no test runs in no tier, and what only root can do runs in a tier of root's.

The tiers are what the Makefile says: a target, and the marks that it selects. CI runs those that `.ci/run` names as
root, some where there is no checkout but the installed wheel (`wheel.sh`), and those that `tests/readme.sh` names as a
new user without rights. A tier imports only files that can have tests of it. Not here: what runs and repeats them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Generator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import chain, combinations
from pathlib import Path

import pytest
from _pytest.mark.expression import Expression

ROOT = Path(__file__).parent.parent
CHECKOUT = "checkout"
"""The mark of tests that are about the repository itself."""
ONLY_ROOT = "only root "
"""How the reason of whoever skips a test for lack of rights begins."""


def selections(makefile: str) -> Mapping[str, str]:
    """Return what each target selects, by the last word of its recipe's lines."""
    recipes = re.findall(r"^([\w-]+):.*\n((?:\t.*\n)+)", makefile, re.MULTILINE)
    marked = {target: re.findall(r"\s-m (?:\"([^\"]+)\"|(\w+))$", recipe, re.MULTILINE) for target, recipe in recipes}
    return {target: "".join(terms[-1]) for target, terms in marked.items() if terms}


def tiers_in(script: str) -> Mapping[str, bool]:
    """Return the targets that a script runs as tiers, and whether against the wheel alone."""
    named = re.findall(r'^ *tier (-C "\$room" )?(\S+)', script, re.MULTILINE)
    return {tier: bool(wheel) for wheel, tier in named}


def tiers_of(marks: Collection[str], selected: Mapping[str, str]) -> frozenset[str]:
    """Return the tiers that run a test with these marks."""
    return frozenset(tier for tier, terms in selected.items() if selects(terms, marks))


def selects(terms: str, marks: Collection[str]) -> bool:
    """Tell whether an expression of marks selects a test that has these."""

    def matches(name: str, /, **_: object) -> bool:
        return name in marks

    return _expression(terms).evaluate(matches)


@cache
def _expression(terms: str) -> Expression:
    """Compile what a tier selects, once for thousands of tests."""
    return Expression.compile(terms)


def as_root() -> Mapping[str, str]:
    """Return the tiers that CI runs as root, and what each selects."""
    return _named_in(".ci/run")


def in_ci() -> Mapping[str, str]:
    """Return all tiers of CI, and what each selects."""
    return {**as_root(), **_named_in("tests/readme.sh")}


def _named_in(script: str) -> Mapping[str, str]:
    selected = selections((ROOT / "Makefile").read_text())
    named = tiers_in((ROOT / script).read_text())
    return {
        tier: f"({selected[tier]}) and not {CHECKOUT}" if wheel else selected[tier] for tier, wheel in named.items()
    }


def _marks(item: pytest.Item) -> frozenset[str]:
    return frozenset(mark.name for mark in item.iter_markers())


TIER_MARKS = frozenset({CHECKOUT, "docker", "root", "slow", "soak", "cluster", "kubelets", "pulumi"})
"""The marks by which tiers select tests; other marks count as present or absent, whichever selects more."""
_NAMED = re.compile(r"\bmarks?\.(" + "|".join(sorted(TIER_MARKS)) + r")\b")
_MODULE_WIDE = re.compile(r"^pytestmark\s*=\s*(?:\[[^\]]*\]|[^\[\n][^\n]*)", re.MULTILINE)


@dataclass(frozen=True)
class NamedMarks:
    """The marks of tiers in a test file's text: those that some test may have, and those that all have."""

    some: frozenset[str]
    all: frozenset[str]

    def may_select(self, terms: str) -> bool:
        """Tell whether a test of such a file can be selected by an expression of marks."""
        varying = sorted(self.some - self.all)
        chosen = chain.from_iterable(combinations(varying, count) for count in range(len(varying) + 1))
        return any(selects(terms, self.all | set(marks)) for marks in chosen)


def named_marks(text: str) -> NamedMarks:
    """Read which marks of tiers a test file names."""
    wide = frozenset(name for found in _MODULE_WIDE.findall(text) for name in _NAMED.findall(found))
    return NamedMarks(frozenset(_NAMED.findall(text)), wide)


@cache
def _named_in_file(path: Path) -> NamedMarks:
    return named_marks(path.read_text())


def _selects_by_tiers(terms: str) -> bool:
    """Tell whether an expression names marks of tiers and nothing else."""
    return bool(terms) and frozenset(re.findall(r"\w+", terms)) - {"and", "or", "not"} <= TIER_MARKS


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave a file without a test of this tier unread: importing all of them takes longer than some tiers."""
    terms = str(config.option.markexpr)
    if collection_path.suffix != ".py" or not _selects_by_tiers(terms):
        return None
    return None if _named_in_file(collection_path).may_select(terms) else True


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Refuse tests that nothing runs or that a tier can't find; leave out those of the checkout where there is none."""
    tiers = in_ci()
    lost = [item.nodeid for item in items if not tiers_of(_marks(item), tiers)]
    if lost:
        raise pytest.UsageError(f"no tier of CI runs {', '.join(lost)}: see the marks that the Makefile selects")
    hidden = [item.nodeid for item in items if not _marks(item) & TIER_MARKS <= _named_in_file(item.path).some]
    if hidden:
        raise pytest.UsageError(f"marks of {', '.join(hidden)} aren't named in their files, where tiers look for them")
    if not (ROOT / "locallb").is_dir():
        absent = [item for item in items if item.get_closest_marker(CHECKOUT)]
        items[:] = [item for item in items if not item.get_closest_marker(CHECKOUT)]
        config.hook.pytest_deselected(items=absent)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what needs root where somebody else runs it."""
    if mark := item.get_closest_marker("root"):
        why = mark.kwargs.get("only")
        if why and os.geteuid() != 0:
            pytest.skip(ONLY_ROOT + why)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Let a test fail that is skipped for lack of rights and that no tier runs as root."""
    report = yield
    lacks_root = report.skipped and ONLY_ROOT in str(report.longrepr)
    if lacks_root and not tiers_of(_marks(item), as_root()):
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} is skipped without root and runs in no tier of root's: mark it `root`"
    return report
