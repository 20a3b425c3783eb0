"""The result of an update for each load balancer in it.

Not here: the update itself (`converge`), and what is told of it (`events`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TypeAlias

from msgspec import Struct, field

from locallb.engine.deploy.events import Op, Result, Severity
from locallb.engine.state.urns import name_of
from locallb.model.identities import ObjectKey
from locallb.model.naming import named_after

_LEAVING_AS_IT_IS = frozenset({Op.SAME, Op.REFRESH, Op.READ})
Names: TypeAlias = Mapping[str, ObjectKey]
"""Load balancers by what their resources are named after: their own key, or the proxy that they took whole."""


class Outcome(Struct, frozen=True):
    """How one update ended."""

    result: Result
    failed: Mapping[ObjectKey, str] = field(default_factory=dict)
    """Why those that failed did."""
    untouched: frozenset[ObjectKey] = frozenset()
    """Those of which nothing had to be changed."""


def failures_of(
    keys: Iterable[ObjectKey], result: Result, roots_of: Callable[[ObjectKey], Collection[str]], names: Names
) -> Mapping[ObjectKey, str]:
    """Return which of `keys` failed, each with the first sentence about it; `roots_of` gives the URNs of a key."""
    if result.ok:
        return {}
    told = [diagnostic for diagnostic in result.diagnostics if diagnostic.severity is Severity.ERROR]
    failed = {
        key: next(
            (failure.message for failure in told if named_after(name_of(failure.urn), names) == key),
            told[0].message if told else "",
        )
        for key in keys
        if not result.broken.isdisjoint(roots_of(key))
    }
    return failed or dict.fromkeys(keys, told[0].message if told else "the update didn't end well")


def touched_by(result: Result, names: Names) -> set[ObjectKey]:
    """Return those of which the update changed any resource."""
    touched = {step.subject.name for step in result.steps if step.op not in _LEAVING_AS_IT_IS}
    return {key for name in touched if (key := named_after(name, names))}
