"""What stands on top of every report, whatever its format: the sentences that a reviewer must not miss.

In this order: violated policies, conflicts, exhaustion, other rejections, addresses that change, wider exposure. Not
here: how a format marks them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from locallb.planning.reasons import Reason
from locallb.planning.report.changes import Change, Report, ServiceChange
from locallb.planning.report.exposure import Exposure, Wider
from locallb.planning.words import counted


class Topic(StrEnum):
    """What an alert is about, the gravest first."""

    UNREADABLE = "unreadable"
    POLICY = "policy"
    CONFLICT = "conflict"
    EXHAUSTION = "exhaustion"
    REJECTION = "rejection"
    ADDRESS = "address"
    EXPOSURE = "exposure"


@dataclass(frozen=True, slots=True)
class Alert:
    """One sentence."""

    topic: Topic
    message: str
    service: str = ""


CONFLICTS = frozenset({Reason.IN_USE, Reason.PORT_IN_USE})
EXHAUSTIONS = frozenset({Reason.POOL_EXHAUSTED, Reason.HOST_LIMIT})
_ORDER = {topic: number for number, topic in enumerate(Topic)}


def alerts(report: Report) -> tuple[Alert, ...]:
    """Find all alerts of a report, by topic, then in the order of Services."""
    found = [Alert(Topic.UNREADABLE, complaint) for complaint in report.complaints]
    found += [Alert(Topic.POLICY, violation.message) for violation in report.violations]
    for service in report.services:
        found += _of_service(service)
    return tuple(sorted(found, key=lambda alert: _ORDER[alert.topic]))


def _of_service(service: ServiceChange) -> Iterator[Alert]:
    key = str(service.key)
    for problem in service.problems:
        yield Alert(_topic(problem.reason), problem.message, key)
    for port in service.after.ports if service.after else ():
        if port.problem in CONFLICTS:
            yield Alert(Topic.CONFLICT, port.message or f"{key} port {port.label}: {port.problem}", key)
    if service.moved:
        yield Alert(Topic.ADDRESS, f"{key}: {moved(service)}", key)
    for exposure in service.exposures:
        yield Alert(Topic.EXPOSURE, f"{key}: {told(exposure)}", key)


def moved(service: ServiceChange) -> str:
    """Say which addresses it loses and gets, as the rest of a sentence that begins with the Service."""
    had = service.before.addresses if service.before else ()
    has = service.after.addresses if service.after else ()
    gone = " and ".join(str(one) for one in had if one not in has)
    new = " and ".join(str(one) for one in has if one not in had)
    return f"its address {gone} becomes {new}" if new else f"it loses its address {gone}"


def _topic(reason: Reason) -> Topic:
    if reason in CONFLICTS:
        return Topic.CONFLICT
    return Topic.EXHAUSTION if reason in EXHAUSTIONS else Topic.REJECTION


def told(exposure: Exposure) -> str:
    """Say what became reachable, as the rest of a sentence that begins with the Service."""
    one = len(exposure.ports) == 1
    ports = f"{'port' if one else 'ports'} {', '.join(exposure.ports)}"
    was, opens = ("was", "opens") if one else ("were", "open")
    where = " and ".join(str(each) for each in exposure.addresses)
    who = listed(exposure.sources) if exposure.sources else "everybody"
    match exposure.kind:
        case Wider.SERVICE:
            return f"new at {where}, {ports} for {who}"
        case Wider.FAMILY:
            return f"{ports} also at {where}, for {who}"
        case Wider.PORT:
            return f"{ports} {'is' if one else 'are'} new, for {who}"
        case Wider.OPENS:
            return f"{ports} {was} closed and {opens}, for {who}"
        case Wider.UNRESTRICTED:
            return f"{ports} {was} only for {listed(exposure.before)} and {opens} for everybody"
        case Wider.SOURCES:
            return f"{ports} also {'lets' if one else 'let'} in {who}"


MOST_LISTED = 6


def listed(things: Iterable[object]) -> str:
    """Write some things with commas, the first few of many."""
    texts = [str(each) for each in things]
    if len(texts) <= MOST_LISTED:
        return ", ".join(texts)
    return f"{', '.join(texts[:MOST_LISTED])} and {len(texts) - MOST_LISTED} more"


def summary(report: Report) -> str:
    """Say in one line what happens: `43 Services: 2 added, 1 changed, 40 unchanged.`."""
    if not report.services:
        return "No Services of type LoadBalancer."
    parts = [f"{count} {change}" for change in Change if (count := report.count(change))]
    return f"{counted(len(report.services), 'Service')}: {', '.join(parts)}."
