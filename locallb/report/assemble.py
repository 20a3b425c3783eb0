"""Assembles a report from two sides: their differences, free addresses of pools, violated policies, changed settings.

Not here: the comparison (`changes`), the policies (`policies`), and the formats (`report.html`, `markdown`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from msgspec.structs import replace

from locallb.config.settings import Settings
from locallb.model.identities import ObjectKey
from locallb.model.snapshot import Snapshot
from locallb.report.changes import Report, Violation, compare, rooms
from locallb.report.policies import violations
from locallb.report.sides import Side


def assembled(
    sides: tuple[Side, Side],
    snapshot: Snapshot,
    settings: Settings,
    *,
    old_settings: Settings | None = None,
    touched: Mapping[ObjectKey, Collection[str]] | None = None,
) -> Report:
    """Compare the old and the new side; `snapshot` and `settings` are those of the new one."""
    old, new = sides
    services = compare(old, new, touched)
    remaining = rooms(new, snapshot, settings)
    violated = violations(services, remaining, settings.policies)
    notices = new.notices
    if old_settings is not None and old_settings.policies != settings.policies:
        notices = (*notices, f"local-lb:policies are others than those of {old.label}, which count as well")
        former = violations(services, remaining, old_settings.policies)
        violated += tuple(_of_old_side(violation, old.label) for violation in former if violation not in violated)
    return Report(
        stack=snapshot.home.stack,
        old=old.label,
        new=new.label,
        services=services,
        rooms=remaining,
        settings=() if old_settings is None else _differing(old_settings, settings),
        notices=notices,
        violations=violated,
    )


def _of_old_side(violation: Violation, label: str) -> Violation:
    """Say that only the former policies forbid it: a change can't allow itself what it does."""
    return replace(violation, message=f"{violation.message} (so {label} has it; change policies by themselves first)")


def _differing(old: Settings, new: Settings) -> tuple[str, ...]:
    return tuple(name for name in Settings.__struct_fields__ if getattr(old, name) != getattr(new, name))
