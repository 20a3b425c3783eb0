"""Leader election by a Lease (coordination.k8s.io/v1): the next step, purely, from the observed record and the time.

The rules are client-go's, with two more. A term counts from the moment at which its renewal was requested, not
answered, and every term has a number that grows, so that a later leader's is always the greater one. All times are of
this process's monotonic clock; times of other clocks in the Lease are never compared with it. Not here: requests,
threads, and what a leader may do.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from locallb.config.settings import Timing
from locallb.model.fields import JsonObject, object_of


class LeaseRecord(Struct, frozen=True):
    """A Lease, as far as it matters."""

    holder: str
    """Empty where its holder gave it up."""
    term: int
    """spec.leaseTransitions."""
    version: str
    """metadata.resourceVersion: it changes with every renewal."""


class Term(Struct, frozen=True):
    """A time in which one process is the leader."""

    number: int
    until: float
    """End of the term, whatever the Lease says."""


class Candidate(Struct, frozen=True):
    """One process in the election."""

    identity: str
    timing: Timing = Timing()
    observed: LeaseRecord | None = None
    since: float = 0.0
    """When the record that was seen last was seen first."""
    term: Term | None = None

    def leads(self, now: float) -> bool:
        return self.term is not None and now < self.term.until


def observed(candidate: Candidate, record: LeaseRecord | None, now: float) -> Candidate:
    """Take note of the Lease as it was read at `now`; None where there is none."""
    if record == candidate.observed:
        return candidate
    term = candidate.term if record and record.holder == candidate.identity else None
    return replace(candidate, observed=record, since=now, term=term)


def wanted_term(candidate: Candidate, now: float, least: int = 0) -> int | None:
    """Return the number of the term to ask for now; None if another one's Lease may still count.

    `least` is the smallest number of a new term: a Lease that was deleted begins at 0 again, terms don't.
    """
    observed = candidate.observed
    if observed is None:
        return least
    if observed.holder == candidate.identity:
        return observed.term
    if observed.holder and now < candidate.since + candidate.timing.lease_duration:
        return None
    return max(observed.term + 1, least)


def won(candidate: Candidate, record: LeaseRecord, requested: float, now: float) -> Candidate:
    """Note that the Lease was written for it, by a request sent at `requested`."""
    until = requested + candidate.timing.renew_deadline
    return replace(candidate, observed=record, since=now, term=Term(record.term, until))


def lease_record(lease: JsonObject) -> LeaseRecord:
    """Parse a Lease; missing or invalid fields count as no holder."""
    spec = object_of(lease.get("spec"))
    transitions = spec.get("leaseTransitions")
    number = transitions if isinstance(transitions, int) else 0
    return LeaseRecord(
        str(spec.get("holderIdentity") or ""), number, str(lease["metadata"].get("resourceVersion") or "")
    )


class Validity(NamedTuple):
    """Validity of a Lease unless it is renewed, by the clocks of this host and of its writer.

    To be shown, never to act on.
    """

    until: datetime
    duration: timedelta

    def is_current(self, now: datetime) -> bool:
        """Return whether it was renewed in time: certain within twice its duration, however clocks were set."""
        return timedelta() <= self.until - now <= 2 * self.duration

    def end(self, now: datetime) -> str:
        """Return since when it doesn't count, as it wasn't renewed."""
        return f"{min(self.until, now).astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"


def validity(lease: JsonObject) -> Validity | None:
    """Read how long a Lease counts; None where it doesn't say."""
    spec = object_of(lease.get("spec"))
    try:
        duration = timedelta(seconds=int(spec["leaseDurationSeconds"]))
        renewed = datetime.fromisoformat(str(spec["renewTime"]))
        return Validity(renewed + duration, duration) if renewed.tzinfo else None
    except (KeyError, TypeError, ValueError, OverflowError):
        return None


def lease_spec(candidate: Candidate, term: int, wall: str, acquired: str) -> dict[str, object]:
    """Write the spec for a term. `wall` and `acquired` are RFC 3339 times, for people and for other implementations."""
    return {
        "holderIdentity": candidate.identity,
        "leaseDurationSeconds": max(1, round(candidate.timing.lease_duration)),
        "acquireTime": acquired,
        "renewTime": wall,
        "leaseTransitions": term,
    }
