"""Withdrawal: while a proxy can't be restarted, its Services stay planned and their statuses lose the addresses.

The addresses stay claimed and the proxies wanted, so that a repair goes on. Not here: which proxies are down.
"""

from __future__ import annotations

from collections.abc import Collection

from msgspec.structs import replace

from locallb.model.reasons import Problem, Reason
from locallb.planning.planned import Placement, Plan


def withdraw(plan: Plan, down: Collection[str]) -> Plan:
    """Return the plan in which statuses of live clusters' Services behind these proxies are withdrawn."""
    if not down:
        return plan
    placements = (
        _withdrawn(placement) if placement.access and placement.proxy in down else placement
        for placement in plan.placements
    )
    return replace(plan, placements=tuple(placements))


def _withdrawn(placement: Placement) -> Placement:
    sentence = (
        f"{placement.key}: its proxy ended or hangs, and isn't back yet; run `locallb doctor` on its host to see why"
    )
    return replace(placement, withdrawn=Problem(Reason.PROXY_DOWN, sentence), statuses=())
