"""From two sides to a report: compared, with the pools' room, the stack's policies and what differs in the settings."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from locallb.config.settings import Settings
from locallb.model.identities import ObjectKey
from locallb.model.snapshot import Snapshot
from locallb.report.changes import Report, compare
from locallb.report.policies import violations
from locallb.report.pool_room import rooms
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
    left = rooms(new, snapshot, settings)
    return Report(
        stack=snapshot.home.stack,
        old=old.label,
        new=new.label,
        services=services,
        rooms=left,
        settings=() if old_settings is None else _differing(old_settings, settings),
        notices=new.notices,
        violations=violations(services, left, settings.policies),
    )


def _differing(old: Settings, new: Settings) -> tuple[str, ...]:
    return tuple(name for name in Settings.__struct_fields__ if getattr(old, name) != getattr(new, name))
