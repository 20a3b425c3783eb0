"""From two sides to a report: compared, with the pools' room, the stack's policies and what differs in the settings."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import fields

from locallb.planning.model import ServiceKey
from locallb.planning.report.changes import Report, compare
from locallb.planning.report.policies import violations
from locallb.planning.report.room import rooms
from locallb.planning.report.sides import Side
from locallb.planning.settings import Settings
from locallb.planning.snapshot import Snapshot


def assembled(
    sides: tuple[Side, Side],
    snapshot: Snapshot,
    settings: Settings,
    *,
    old_settings: Settings | None = None,
    touched: Mapping[ServiceKey, Collection[str]] | None = None,
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
    return tuple(one.name for one in fields(Settings) if getattr(old, one.name) != getattr(new, one.name))
