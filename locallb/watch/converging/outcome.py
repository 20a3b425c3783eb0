"""The result of an update for each load balancer in it.

Not here: the update itself (`converge`), and how it is reported (`events`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from msgspec import Struct, field

from locallb.engine.core.events import Op, Result
from locallb.model.identities import ObjectKey
from locallb.model.naming import named_after

_LEAVING_AS_IT_IS = frozenset({Op.SAME, Op.REFRESH, Op.READ})
Names: TypeAlias = Mapping[str, ObjectKey]
"""Load balancers by what their resources are named after: their own key, or the proxy that they took whole."""


class Outcome(Struct, frozen=True):
    """How one update ended."""

    result: Result
    failed: Mapping[ObjectKey, str] = field(default_factory=dict)
    """Reasons of failed ones."""
    untouched: frozenset[ObjectKey] = frozenset()
    """Load balancers without a necessary change."""
    ended: frozenset[ObjectKey] = frozenset()
    """Load balancers with a finished update; the remaining ones are still running."""
    since: float = 0.0
    """When the first of them began, by the monotonic clock."""


def touched_by(result: Result, names: Names) -> set[ObjectKey]:
    """Return those of which the update changed any resource."""
    touched = {step.subject.name for step in result.steps if step.op not in _LEAVING_AS_IT_IS}
    return {key for name in touched if (key := named_after(name, names))}
