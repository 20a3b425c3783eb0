"""The Services for which something can be ordered, as they are now."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from locallb.cli.commands.targets import matching
from locallb.cli.session import Session
from locallb.model.identities import ObjectKey
from locallb.model.objects import Service
from locallb.model.snapshot import Snapshot
from locallb.planning.planned import Placement


class Served(NamedTuple):
    """Services that get addresses, and what was read and planned with them."""

    services: Mapping[ObjectKey, Service]
    placements: Mapping[ObjectKey, Placement]
    snapshot: Snapshot


def served(session: Session) -> Served:
    """Return the Services that get addresses, as they are ordered now."""
    reading, plan = session.plan()
    placed = {placement.key: placement for placement in plan.placements}
    services = {service.key: service for service in reading.snapshot.services if service.key in placed}
    return Served(services, placed, reading.snapshot)


def chosen_of(names: Iterable[str], known: Served) -> tuple[ObjectKey, ...]:
    """Return which Services are named. Raises TargetError if a name is nobody's, or not only one's."""
    keys = {str(key): key for key in known.services}
    return tuple(dict.fromkeys(keys[matching(name, keys)] for name in names))
