"""Fault injection as data: which share of connections and requests fails, how, until when, and which backends drain.

The annotation that orders a fault is here, too. Not here: the commands that order one, and how Envoy injects it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from locallb.model.identities import KEY_PREFIX, UpstreamName
from locallb.patterns import pattern

WHOLE = 10_000
"""Hundredths of a percent: all connections."""
ALL = "*"
"""In place of a backend's name: nothing is called so."""
_PERCENT = pattern(r"(\d{1,3})(?:\.(\d{1,2}))?%")
_UNTIL = pattern(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}Z")


_DELAY = pattern(r"([1-9]\d{0,6})(ms|s)", re.ASCII)
_STATUS = pattern(r"[2-5]\d\d", re.ASCII)
_LONGEST = 3600 * 1000
"""Milliseconds that a request may be delayed by: an hour, after which its client will have given up."""


class RequestDelay(Struct, frozen=True):
    """Delay of requests."""

    milliseconds: int
    share: int = WHOLE

    def __post_init__(self) -> None:
        """Raise ValueError with half a sentence for what can't be."""
        if not 0 < self.milliseconds <= _LONGEST:
            raise ValueError("a delay is at most 1 hour")
        _require_share(self.share)

    @classmethod
    def parse(cls, text: str) -> RequestDelay:
        """Read `200ms`, which is for all requests, or `2s:10%`. Raises ValueError with half a sentence."""
        value, share = _parted(text)
        match = _DELAY.fullmatch(value)
        if not match:
            raise ValueError(f"{text!r} is no delay such as 200ms or 2s:10%")
        return cls(int(match[1]) * (1000 if match[2] == "s" else 1), share)

    @property
    def terms(self) -> str:
        """Return what `parse` reads as this one."""
        return f"{self.milliseconds}ms{_of_some(self.share)}"


class RequestFailure(Struct, frozen=True):
    """The answer to requests in place of a backend's."""

    status: int
    share: int = WHOLE

    def __post_init__(self) -> None:
        """Raise ValueError with half a sentence for what can't be."""
        _require_share(self.share)

    @classmethod
    def parse(cls, text: str) -> RequestFailure:
        """Read `503`, which is for all requests, or `503:10%`. Raises ValueError with half a sentence."""
        value, share = _parted(text)
        if not _STATUS.fullmatch(value):
            raise ValueError(f"{text!r} is no status such as 503 or 503:10%, from 200 to 599")
        return cls(int(value), share)

    @property
    def terms(self) -> str:
        """Return what `parse` reads as this one."""
        return f"{self.status}{_of_some(self.share)}"


class Fault(Struct, frozen=True):
    """Shares in hundredths of a percent; those of connections are together at most all."""

    until: str
    """When it ends, such as 2026-11-22T18:00:00Z; the proxies' configuration ends it by this."""
    refuse: int = 0
    """Connections that are reset as soon as they are made."""
    hang: int = 0
    """Share of connections never answered, once the client has sent something."""
    reset: int = 0
    """Share of connections closed, once the client has sent something."""
    delay: RequestDelay | None = None
    """Requests that wait."""
    status: RequestFailure | None = None
    """Requests that get another answer, whether they waited or not."""

    def __post_init__(self) -> None:
        """Raise ValueError with half a sentence for what can't be."""
        shares = self.refuse, self.hang, self.reset
        if min(shares) < 0 or sum(shares) > WHOLE or not (any(shares) or self.delay or self.status):
            raise ValueError("its shares are together more than 0% and at most 100%")
        _require_end(self.until)

    def __str__(self) -> str:
        shares = {"refused": self.refuse, "left hanging": self.hang, "reset": self.reset}
        of_connections = [f"{share / 100:g}% are {how}" for how, share in shares.items() if share]
        of_requests = []
        if self.delay:
            of_requests.append(f"{self.delay.share / 100:g}% are delayed by {self.delay.milliseconds}ms")
        if self.status:
            of_requests.append(f"{self.status.share / 100:g}% are answered {self.status.status}")
        parts = {"of new TCP connections": of_connections, "of requests": of_requests}
        sentence = "; ".join(f"{owned_by} {', '.join(what)}" for owned_by, what in parts.items() if what)
        return f"{sentence}, until {self.until}"

    @property
    def terms(self) -> str:
        """Return what `parse_fault` reads as this one."""
        shares = {"refuse": self.refuse, "hang": self.hang, "reset": self.reset}
        parts = [f"{name}={share / 100:g}%" for name, share in shares.items() if share]
        of_requests = {"delay": self.delay, "status": self.status}
        parts += [f"{name}={part.terms}" for name, part in of_requests.items() if part]
        return ",".join([*parts, f"until={self.until}"])

    @property
    def of_connections(self) -> Fault | None:
        """Return what of it befalls connections."""
        return replace(self, delay=None, status=None) if self.refuse + self.hang + self.reset else None

    @property
    def of_requests(self) -> Fault | None:
        """Return what of it befalls requests."""
        return replace(self, refuse=0, hang=0, reset=0) if self.delay or self.status else None


def parse_fault(text: str) -> Fault:
    """Read `refuse=10%,hang=5%,reset=1%,delay=200ms:50%,status=503:10%,until=2026-11-22T18:00:00Z`.

    Raises ValueError with half a sentence.
    """
    parts = [part.strip().partition("=") for part in text.split(",")]
    given = {name.strip(): value.strip() for name, _, value in parts}
    if unknown := sorted(given.keys() - {*_SHARES, "delay", "status", "until"}):
        raise ValueError(f"{unknown[0]!r} is none of refuse, hang, reset, delay, status and until")
    if len(given) < len(parts):
        raise ValueError("something is said twice")
    return Fault(
        given.get("until", ""),
        **{name: parse_share(given[name]) for name in _SHARES if name in given},
        delay=RequestDelay.parse(given["delay"]) if "delay" in given else None,
        status=RequestFailure.parse(given["status"]) if "status" in given else None,
    )


_SHARES = "refuse", "hang", "reset"


class Down(Struct, frozen=True):
    """Backends marked down until `until`; Envoy enforces the expiry."""

    names: frozenset[str]
    """Of Nodes and Pods, and addresses."""
    until: str

    def __post_init__(self) -> None:
        """Raise ValueError with half a sentence for what can't be."""
        _require_end(self.until)


class Detour(Struct, frozen=True):
    """Where connections go instead, to its end."""

    upstream: UpstreamName
    """Empty for nowhere."""
    until: str


_Ends = TypeVar("_Ends", Fault, Down)


class Order(Struct, frozen=True):
    """An override of one Service by a command, in addition to its annotation."""

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
    """Return an override unless it expired by `now`, written as ends are."""
    return order if order and order.until > now else None


def parse_share(text: str) -> int:
    """Read a share such as 10% or 0.5%, in hundredths of a percent. Raises ValueError with half a sentence."""
    match = _PERCENT.fullmatch(text)
    if not match:
        raise ValueError(f"{text!r} is not a percentage (for example 10% or 0.5%)")
    return int(match[1]) * 100 + int((match[2] or "").ljust(2, "0"))


def _parted(text: str) -> tuple[str, int]:
    """Return a value and the share behind it, which is all where none is said."""
    value, colon, share = text.partition(":")
    return value, parse_share(share) if colon else WHOLE


def _of_some(share: int) -> str:
    return "" if share == WHOLE else f":{share / 100:g}%"


def _require_share(share: int) -> None:
    if not 0 < share <= WHOLE:
        raise ValueError("a share is more than 0% and at most 100%")


def _require_end(text: str) -> None:
    if not _UNTIL.fullmatch(text) or not _is_time(text):
        raise ValueError("until is a time such as 2026-11-22T18:00:00Z")


def _is_time(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


FAULT_ANNOTATION = f"{KEY_PREFIX}fault"
"""The fault of a Service, a Gateway, a route or an Ingress, as `parse_fault` reads it."""


def fault_in(annotations: Mapping[str, str]) -> Fault | None:
    """Read the ordered fault; None for none, and for an invalid one: that prevents no serving."""
    try:
        return parse_fault(annotations[FAULT_ANNOTATION])
    except (KeyError, ValueError):
        return None


def annotation_problem(annotations: Mapping[Any, object], *, routed: bool) -> str:
    """Return what of the annotation orders nothing, for what has requests (`routed`) or connections; empty for none."""
    value = annotations.get(FAULT_ANNOTATION)
    if not isinstance(value, str):
        return ""
    terms = "delay=200ms,status=503:10%" if routed else "refuse=10%,hang=5%,reset=1%"
    try:
        fault = parse_fault(value)
    except ValueError as error:
        why = f"nothing, because {error}"
    else:
        if not (fault.of_connections if routed else fault.of_requests):
            return ""
        others = "refuse, hang and reset for connections of Services"
        why = f"{others if routed else 'delay and status for requests to Gateways'} only"
    return f"the annotation {FAULT_ANNOTATION} orders {why}; write {terms},until=2026-11-22T18:00:00Z, or remove it"
