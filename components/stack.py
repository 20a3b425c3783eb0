"""Declares what a plan wants, as a whole or in parts, and the stack's outputs."""

from __future__ import annotations

from collections.abc import Mapping

import pulumi

from components.groups import declare_groups
from locallb.desired.groups import Desired, desired
from locallb.desired.shown import exports
from locallb.planning.planned import Plan


def declare(plan: Plan, wanted: Desired | None = None) -> None:
    """Declare all resources of a plan, which are `wanted` if given; export the addresses, and warn."""
    declare_groups((wanted or desired(plan)).groups)
    _export(exports(plan))
    for rejection in plan.rejections:
        pulumi.log.warn(str(rejection.problem))
    for notice in plan.notices:
        pulumi.log.warn(notice)


def _export(outputs: Mapping[str, object]) -> None:
    for name, value in outputs.items():
        pulumi.export(name, value)
