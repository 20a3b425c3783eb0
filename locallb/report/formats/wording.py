"""Texts for changes and differences that all formats share."""

from __future__ import annotations

from msgspec.structs import replace

from locallb.report.alerts import listed
from locallb.report.changes import Change, Difference, Report, ServiceChange, What
from locallb.report.sides import Balancer

SIGNS = {
    Change.ADDED: "+",
    Change.CHANGED: "~",
    Change.REPAIRED: "↻",
    Change.LOST: "✗",
    Change.REMOVED: "-",
    Change.REJECTED: "!",
    Change.UNCHANGED: "·",
}
_NAMES = {
    What.ADDRESSES: "address",
    What.SOURCES: "allowed clients",
    What.BACKENDS: "backends",
    What.AFFINITY: "session affinity",
    What.PROBLEM: "problem",
    What.LISTENS: "listens at",
    What.ENVOY: "Envoy",
    What.CONTAINER: "container",
}
_SENTENCES = {
    What.UID: "recreated in the cluster: another uid",
    What.CONFIGURATION: "its proxy's configuration",
}
_ORDER = {
    change: number
    for number, change in enumerate(
        (
            Change.LOST,
            Change.REMOVED,
            Change.CHANGED,
            Change.ADDED,
            Change.REPAIRED,
            Change.REJECTED,
            Change.UNCHANGED,
        )
    )
}


def by_gravity(report: Report) -> list[ServiceChange]:
    """Sort Services as a reviewer reads them: what breaks first, what stays the same last."""
    return sorted(report.services, key=lambda service: (_ORDER[service.change], service.key))


def shown_side(service: ServiceChange) -> Balancer | None:
    """Return the load balancer to show: the new one, or the old one of a Service that loses it."""
    return service.after or service.before


def difference(change: Difference) -> str:
    """Return one difference in words."""
    where = f"{'ports' if ',' in change.port else 'port'} {change.port}" if change.port else ""
    match change.what:
        case What.PORT:
            return f"{where}: new" if change.after else f"{where}: removed"
        case What.UID | What.CONFIGURATION:
            return _SENTENCES[change.what]
        case What.RESOURCES:
            return f"put right: {listed(change.after)}"
        case What.ROUTES:
            parts = (("new", change.after), ("gone", change.before))
            return "routes: " + "; ".join(f"{word}: {listed(routes)}" for word, routes in parts if routes)
        case What.SOURCES:
            return f"{where}, {_NAMES[change.what]}: {_sides(change, 'everybody')}"
        case _:
            return f"{where}{', ' if where else ''}{_NAMES[change.what]}: {_sides(change, 'none')}"


def _sides(change: Difference, nothing: str) -> str:
    return f"{listed(change.before) or nothing} → {listed(change.after) or nothing}"


def reasons(service: ServiceChange) -> list[str]:
    """Return why a Service has this change: problems, differences, ports that can't be served."""
    return [*(str(problem.reason) for problem in service.problems), *differences(service), *closed(service)]


def differences(service: ServiceChange) -> list[str]:
    """Return in what a Service differs; what differs alike for several ports once."""
    ports: dict[Difference, list[str]] = {}
    for change in service.differences:
        if change.what is not What.PROBLEM:
            alike = change if change.what is What.PORT else replace(change, port="")
            ports.setdefault(alike, []).append(change.port)
    return [difference(replace(alike, port=", ".join(labels))) for alike, labels in ports.items()]


def closed(service: ServiceChange) -> list[str]:
    """Return which ports can't be served, by the code of the reason."""
    ports: dict[str, list[str]] = {}
    for port in service.after.ports if service.after else ():
        if port.problem:
            ports.setdefault(port.problem, []).append(port.label)
    return [f"{', '.join(labels)} {problem}" for problem, labels in ports.items()]
