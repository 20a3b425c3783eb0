"""The timing of a leader election by a Lease, as a stack may configure it."""

from __future__ import annotations

from msgspec import Struct


class Timing(Struct, frozen=True):
    """Seconds, by client-go's names and defaults."""

    lease_duration: float = 15.0
    """Seconds after the last observed renewal until other candidates may acquire the Lease."""
    renew_deadline: float = 10.0
    """Seconds after its last requested renewal for which a leader counts itself as one."""
    retry_period: float = 2.0
