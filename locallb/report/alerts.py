"""The alerts at the top of every report, in any format: sentences that a reviewer must not miss.

In this order: what can't be read, violated policies, conflicts, exhaustion, other rejections, what is removed,
addresses that change, wider exposure, less access. Not here: how a format marks them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import StrEnum

from msgspec import Struct

from locallb.model.reasons import Reason
from locallb.model.texts import counted, few
from locallb.report.changes import Change, Report, ServiceChange
from locallb.report.exposure import Exposure, Narrower, Narrowing, Wider
from locallb.report.sides import Balancer


class Topic(StrEnum):
    """What an alert is about, the gravest first."""

    UNREADABLE = "unreadable"
    POLICY = "policy"
    CONFLICT = "conflict"
    EXHAUSTION = "exhaustion"
    REJECTION = "rejection"
    REMOVAL = "removal"
    """A Service or a port that goes."""
    ADDRESS = "address"
    EXPOSURE = "exposure"
    NARROWING = "narrowing"
    """Clients that may not come any more, and ports without a backend."""


class Alert(Struct, frozen=True):
    """One sentence."""

    topic: Topic
    message: str
    service: str = ""


CONFLICTS = frozenset({Reason.IN_USE, Reason.PORT_IN_USE})
EXHAUSTIONS = frozenset({Reason.POOL_EXHAUSTED, Reason.HOST_LIMIT})
_OF_ADDRESSES = frozenset({Narrower.SERVICE, Narrower.FAMILY})
"""Change kinds that are reported by the removed Service, or by the addresses that it loses."""
_ORDER = {topic: number for number, topic in enumerate(Topic)}


def alerts(report: Report) -> tuple[Alert, ...]:
    """Find all alerts of a report, by topic, then in the order of Services."""
    listed = [Alert(Topic.UNREADABLE, complaint) for complaint in report.complaints]
    listed += [
        Alert(Topic.POLICY, f"{each.message} (advisory)" if each.advisory else each.message)
        for each in report.violations
    ]
    for service in report.services:
        listed += _of_service(service)
    return tuple(sorted(listed, key=lambda alert: _ORDER[alert.topic]))


def _of_service(service: ServiceChange) -> Iterator[Alert]:
    key = str(service.key)
    for problem in service.problems:
        yield Alert(_topic(problem.reason), problem.message, key)
    for port in service.after.ports if service.after else ():
        if port.problem in CONFLICTS:
            yield Alert(Topic.CONFLICT, port.message or f"{key} port {port.label}: {port.problem}", key)
    if service.change is Change.REMOVED and service.before:
        yield Alert(Topic.REMOVAL, f"{key}: {removed(service.before)}", key)
    if service.moved:
        yield Alert(Topic.ADDRESS, f"{key}: {moved(service)}", key)
    for exposure in service.exposures:
        yield Alert(Topic.EXPOSURE, f"{key}: {reported(exposure)}", key)
    for narrowing in service.narrowings:
        if narrowing.kind not in _OF_ADDRESSES:
            topic = Topic.REMOVAL if narrowing.kind is Narrower.PORT else Topic.NARROWING
            yield Alert(topic, f"{key}: {withdrawn(narrowing)}", key)


def moved(service: ServiceChange) -> str:
    """Return which addresses it loses and gets, as the rest of a sentence that begins with the Service."""
    had = service.before.addresses if service.before else ()
    has = service.after.addresses if service.after else ()
    former = " and ".join(str(item) for item in had if item not in has)
    new = " and ".join(str(item) for item in has if item not in had)
    return f"its address {former} becomes {new}" if new else f"it loses its address {former}"


def removed(balancer: Balancer) -> str:
    """Return what goes with a Service, as the rest of a sentence that begins with it."""
    addresses = " and ".join(str(address) for address in balancer.addresses) or "no address"
    _, ports = _counted(tuple(port.label for port in balancer.ports))
    return f"removed, and with it {addresses}, {ports}"


def _topic(reason: Reason) -> Topic:
    if reason in CONFLICTS:
        return Topic.CONFLICT
    return Topic.EXHAUSTION if reason in EXHAUSTIONS else Topic.REJECTION


def reported(exposure: Exposure) -> str:
    """Return what became reachable, as the rest of a sentence that begins with the Service."""
    single, ports = _counted(exposure.ports)
    was, opens = ("was", "opens") if single else ("were", "open")
    where = " and ".join(str(address) for address in exposure.addresses)
    party = listed(exposure.sources) if exposure.sources else "everybody"
    match exposure.kind:
        case Wider.SERVICE:
            return f"new at {where}, {ports} for {party}"
        case Wider.FAMILY:
            return f"{ports} also at {where}, for {party}"
        case Wider.PORT:
            return f"{ports} {'is' if single else 'are'} new, for {party}"
        case Wider.OPENS:
            return f"{ports} {was} closed and {opens}, for {party}"
        case Wider.UNRESTRICTED:
            return f"{ports} {was} only for {listed(exposure.before)} and {opens} for everybody"
        case Wider.SOURCES:
            return f"{ports} also {'lets' if single else 'let'} in {party}"


def withdrawn(narrowing: Narrowing) -> str:
    """Return what can't be reached any more, as the rest of a sentence that begins with the Service."""
    single, ports = _counted(narrowing.ports)
    is_, lets = ("is", "lets") if single else ("are", "let")
    where = " and ".join(str(address) for address in narrowing.addresses)
    match narrowing.kind:
        case Narrower.SERVICE | Narrower.FAMILY:
            return f"{ports} {is_} no longer at {where}"
        case Narrower.PORT:
            return f"{ports} {is_} removed"
        case Narrower.CLOSES:
            return (
                f"{ports} {'closes' if single else 'close'}: {'it has' if single else 'they have'} no backend any more"
            )
        case Narrower.RESTRICTED:
            return (
                f"{ports} {'was' if single else 'were'} open to everybody and {lets} in only {listed(narrowing.after)}"
            )
        case Narrower.SOURCES:
            return f"{ports} no longer {lets} in all of {listed(narrowing.sources)}, only {listed(narrowing.after)}"


def _counted(labels: tuple[str, ...]) -> tuple[bool, str]:
    single = len(labels) == 1
    return single, f"{'port' if single else 'ports'} {', '.join(labels)}"


MAX_LISTED = 6


def listed(things: Iterable[object]) -> str:
    """Write some things with commas, the first few of many."""
    return few([str(item) for item in things], MAX_LISTED)


def summary(report: Report) -> str:
    """Return in one line what happens: `43 Services: 2 added, 1 changed, 40 unchanged.`."""
    if not report.services:
        return "No Services of type LoadBalancer."
    parts = [f"{count} {change}" for change in Change if (count := report.count(change))]
    return f"{counted(len(report.services), 'Service')}: {', '.join(parts)}."
