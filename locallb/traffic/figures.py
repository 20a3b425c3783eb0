"""Counters and latency histograms: their sums over families and proxies, and their difference between two readings.

Latencies are histograms in the bins that Envoy counts in. Those are the same everywhere, so that adding counts bin by
bin loses nothing; percentiles of proxies can't be added. Pure. Not here: where counts come from.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from operator import add

from msgspec import Struct, field
from msgspec.structs import astuple

_WHOLE = 100


class Counts(Struct, frozen=True):
    """Results of connections and requests since their proxy was configured with the backend."""

    connections: int = 0
    """Connections that a backend accepted."""
    failed_connections: int = 0
    """Attempts that it didn't take; the client may have been served by another backend."""
    active: int = 0
    """Connections that are open now."""
    requests: int = 0
    """Of HTTP."""
    failed_requests: int = 0
    """Answered with 500 and more, or not at all."""

    def __add__(self, other: Counts) -> Counts:
        return Counts(*(map(add, astuple(self), astuple(other))))

    def since(self, before: Counts) -> Counts:
        """Return what came after an earlier look; all of it where the counting began again in between."""
        if any(count < earlier for name, count, earlier in _pairs(self, before) if name != "active"):
            return self
        gained = {name: count - earlier for name, count, earlier in _pairs(self, before)}
        return Counts(**{**gained, "active": self.active})


def _pairs(counts: Counts, before: Counts) -> Iterable[tuple[str, int, int]]:
    return zip(counts.__struct_fields__, astuple(counts), astuple(before), strict=True)


class Bin(Struct, frozen=True):
    """A range of values, of which `low` is the least."""

    low: float
    width: float


class Latencies(Struct, frozen=True):
    """How many requests took how long, in milliseconds."""

    counts: Mapping[Bin, int] = field(default_factory=dict)

    def __add__(self, other: Latencies) -> Latencies:
        return Latencies(Counter(self.counts) + Counter(other.counts))

    @property
    def total(self) -> int:
        """Return how many there are."""
        return sum(self.counts.values())

    def percentile(self, percent: float) -> float | None:
        """Return the time within which so many of a hundred were answered; None without any."""
        rank, passed = self.total * percent / _WHOLE, 0
        for latency_bin in sorted(self.counts, key=lambda latency_bin: latency_bin.low):
            count = self.counts[latency_bin]
            if count and passed + count >= rank:
                return latency_bin.low + latency_bin.width * max(0.0, rank - passed) / count
            passed += count
        return None

    def since(self, before: Latencies) -> Latencies:
        """Return what came after an earlier look; all of it where the counting began again in between."""
        if any(self.counts.get(latency_bin, 0) < count for latency_bin, count in before.counts.items()):
            return self
        return Latencies(Counter(self.counts) - Counter(before.counts))


class Details(Struct, frozen=True):
    """What a proxy counts only where the stack asks for it."""

    received: int = 0
    """Bytes from clients to backends."""
    sent: int = 0
    """Bytes from backends to clients."""
    latencies: Latencies = field(default_factory=Latencies)

    def __add__(self, other: Details) -> Details:
        return Details(self.received + other.received, self.sent + other.sent, self.latencies + other.latencies)

    def since(self, before: Details) -> Details:
        """Return what came after an earlier look; all of it where the counting began again in between."""
        if self.received < before.received or self.sent < before.sent:
            return self
        latencies = self.latencies.since(before.latencies)
        return Details(self.received - before.received, self.sent - before.sent, latencies)


class UpstreamFigures(Struct, frozen=True):
    """What flowed to the backends of one upstream of a proxy."""

    backends: Mapping[str, Counts] = field(default_factory=dict)
    """By `address:port`."""
    details: Details | None = None
    """None where its proxy doesn't count them."""

    def __add__(self, other: UpstreamFigures) -> UpstreamFigures:
        places = sorted({*self.backends, *other.backends})
        both = {place: self.backends.get(place, Counts()) + other.backends.get(place, Counts()) for place in places}
        existing = [figures.details for figures in (self, other) if figures.details]
        return UpstreamFigures(both, sum(existing[1:], existing[0]) if existing else None)

    @property
    def total(self) -> Counts:
        """Return the counts of all backends together."""
        return sum(self.backends.values(), Counts())

    def since(self, before: UpstreamFigures) -> UpstreamFigures:
        """Return what came after an earlier look."""
        gained = {place: counts.since(before.backends.get(place, Counts())) for place, counts in self.backends.items()}
        details = self.details.since(before.details) if self.details and before.details else self.details
        return UpstreamFigures(gained, details)
