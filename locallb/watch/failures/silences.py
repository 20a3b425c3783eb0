"""Ports without a backend that takes connections, published to clusters once that has lasted. Pure.

A backend that restarts is away for a moment, and every change is a write to a cluster: so what is published changes
only after `LASTING` seconds in which proxies reported otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from msgspec import Struct, field

from locallb.planning.statuses.unanswered import SilentPort

LASTING = 4.0
"""Seconds: more than proxies wait before they are asked again about what is silent."""
_NONE: Mapping[SilentPort, float] = MappingProxyType({})


class Silences(Struct, frozen=True):
    """What is published, and since when proxies report otherwise."""

    published: frozenset[SilentPort] = frozenset()
    since: Mapping[SilentPort, float] = field(default_factory=lambda: _NONE)

    def observed(self, now: float, silent: frozenset[SilentPort]) -> Silences:
        """Note what is silent now."""
        otherwise = {port: self.since.get(port, now) for port in silent ^ self.published}
        lasting = {port for port, at in otherwise.items() if at + LASTING <= now}
        remaining = {port: at for port, at in otherwise.items() if port not in lasting}
        return Silences(self.published ^ lasting, MappingProxyType(remaining))

    def check_at(self) -> float | None:
        """Return when something else may be to be published; None if nothing is."""
        return min((at + LASTING for at in self.since.values()), default=None)
