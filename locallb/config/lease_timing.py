"""The timing of a leader election by a Lease, as a stack may configure it."""

from __future__ import annotations

from msgspec import Struct


class Timing(Struct, frozen=True):
    """Seconds, by client-go's names and defaults."""

    lease_duration: float = 15.0
    """Others wait so long after the last renewal that they have seen."""
    renew_deadline: float = 10.0
    """A leader counts itself as one so long after the last renewal that it asked for."""
    retry_period: float = 2.0
