"""What somebody ordered for a Service's connections: which share of them fails how until when, who gets no new ones.

Not here: how it was ordered, and how Envoy is told.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TypeVar

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
        _require_end(self.until)

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
class Down:
    """Backends that count as if they refused, to the end that whoever serves them ends it by."""

    names: frozenset[str]
    """Of Nodes and Pods, and addresses."""
    until: str

    def __post_init__(self) -> None:
        """Raise ValueError with half a sentence for what can't be."""
        _require_end(self.until)


@dataclass(frozen=True, slots=True)
class Detour:
    """Where connections go instead, to its end."""

    upstream: str
    """Empty for nowhere."""
    until: str


_Ends = TypeVar("_Ends", Fault, Down)


@dataclass(frozen=True, slots=True)
class Order:
    """What was ordered for one Service by a command, beside what its annotation says."""

    fault: Fault | None = None
    """Counts instead of the annotation's."""
    drained: frozenset[str] = frozenset()
    """Names of Nodes and Pods, and addresses, that get no new connections; `ALL` for every one."""
    down: Down | None = None

    def at(self, now: str) -> Order:
        """Leave out what is over at that time, written as ends are."""
        return replace(self, fault=at_time(self.fault, now), down=at_time(self.down, now))


NO_ORDER = Order()


def at_time(order: _Ends | None, now: str) -> _Ends | None:
    """Return what was ordered unless it is over at that time, written as ends are."""
    return order if order and order.until > now else None


def parse_share(text: str) -> int:
    """Read a share such as 10% or 0.5%, in hundredths of a percent. Raises ValueError with half a sentence."""
    match = _PERCENT.fullmatch(text)
    if not match:
        raise ValueError(f"{text!r} is no share such as 10% or 0.5%")
    return int(match[1]) * 100 + int((match[2] or "").ljust(2, "0"))


def _require_end(text: str) -> None:
    if not _UNTIL.fullmatch(text) or not _is_time(text):
        raise ValueError("until is a time such as 2026-11-22T18:00:00Z")


def _is_time(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True
