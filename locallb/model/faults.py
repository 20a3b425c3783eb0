"""What somebody ordered for a Service's connections: which share of them fails how until when, who gets no new ones.

Not here: how it was ordered, and how Envoy is told.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import datetime

WHOLE = 10_000
"""Hundredths of a percent: all connections."""
ALL = "*"
"""In place of a backend's name: nothing is called so."""
_PERCENT = re.compile(r"(\d{1,3})(?:\.(\d{1,2}))?%")
_UNTIL = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}Z")


@dataclass(frozen=True, slots=True)
class Fault:
    """Shares in hundredths of a percent; together at most all."""

    until: str
    """When it ends, such as 2026-11-22T18:00:00Z; whoever serves then ends it by this."""
    refuse: int = 0
    """Reset as soon as they are made."""
    hang: int = 0
    """Never answered, once the client has sent something."""
    reset: int = 0
    """Closed, once the client has sent something."""

    def __post_init__(self) -> None:
        """Raise ValueError with half a sentence for what can't be."""
        if not 0 < self.refuse + self.hang + self.reset <= WHOLE or min(self.refuse, self.hang, self.reset) < 0:
            raise ValueError("its shares are together more than 0% and at most 100%")
        if not _UNTIL.fullmatch(self.until) or not _is_time(self.until):
            raise ValueError("until is a time such as 2026-11-22T18:00:00Z")

    def __str__(self) -> str:
        shares = {"refused": self.refuse, "left hanging": self.hang, "reset": self.reset}
        told = ", ".join(f"{share / 100:g}% are {how}" for how, share in shares.items() if share)
        return f"{told}, until {self.until}"

    @property
    def words(self) -> str:
        """Return what `parse_fault` reads as this one."""
        shares = {"refuse": self.refuse, "hang": self.hang, "reset": self.reset}
        parts = [f"{name}={share / 100:g}%" for name, share in shares.items() if share]
        return ",".join([*parts, f"until={self.until}"])


def parse_fault(text: str) -> Fault:
    """Read `refuse=10%,hang=5%,reset=1%,until=2026-11-22T18:00:00Z`. Raises ValueError with half a sentence."""
    parts = [part.strip().partition("=") for part in text.split(",")]
    given = {name.strip(): value.strip() for name, _, value in parts}
    if unknown := sorted(given.keys() - {"refuse", "hang", "reset", "until"}):
        raise ValueError(f"{unknown[0]!r} is none of refuse, hang, reset and until")
    if len(given) < len(parts):
        raise ValueError("something is said twice")
    shares = {name: parse_share(value) for name, value in given.items() if name != "until"}
    return Fault(given.get("until", ""), **shares)


@dataclass(frozen=True, slots=True)
class Order:
    """What was ordered for one Service by a command, beside what its annotation says."""

    fault: Fault | None = None
    """Counts instead of the annotation's."""
    drained: frozenset[str] = frozenset()
    """Names of Nodes and Pods, and addresses, that get no new connections; `ALL` for every one."""

    def at(self, now: str) -> Order:
        """Leave out what is over at that time, written as ends are."""
        return replace(self, fault=fault_at(self.fault, now))


NO_ORDER = Order()


def fault_at(fault: Fault | None, now: str) -> Fault | None:
    """Return a fault unless it is over at that time, written as ends are."""
    return fault if fault and fault.until > now else None


def parse_share(text: str) -> int:
    """Read a share such as 10% or 0.5%, in hundredths of a percent. Raises ValueError with half a sentence."""
    match = _PERCENT.fullmatch(text)
    if not match:
        raise ValueError(f"{text!r} is no share such as 10% or 0.5%")
    return int(match[1]) * 100 + int((match[2] or "").ljust(2, "0"))


def _is_time(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True
