"""Texts of a report that all formats share: alerts, differences, and escaping for Markdown, HTML and a terminal.

Names and annotations come from everyone with the right to open a pull request. Control characters and the ones that
turn or hide text are written out, long texts are cut, and every character that a format would act on becomes a
reference.

Alerts are sentences that a reviewer must not miss, in this order: what can't be read, violated policies, conflicts,
exhaustion, other rejections, what is removed, addresses that change, wider exposure, less access. Not here: the formats
themselves (`report.html`, `markdown`), and how they mark an alert.
"""

from __future__ import annotations

import html
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from locallb.model.reasons import Reason
from locallb.model.texts import counted, few, printable
from locallb.patterns import pattern
from locallb.report.changes import (
    Change,
    Exposure,
    Narrower,
    Narrowing,
    PortDifference,
    Report,
    RequestChange,
    SampleRequests,
    ServiceChange,
    What,
    Wider,
)
from locallb.report.sides import Balancer

LONGEST_NAME = 120
LONGEST_SENTENCE = 600
"""Characters of a name and of a sentence that are shown."""
_MARKDOWN = pattern(r"[^A-Za-z0-9 ,.;:/()=-]")
_CALLS = pattern(r"&#(?:33|35|36|37|38|64|94|126);")
"""Signs with which GitHub and GitLab begin mentions, issues, labels and the like, as references."""
_NUMBERED = pattern(r"(?i:\bgh(?=-\d))|\b[A-Z][A-Z0-9]+(?=-\d)")
"""What GitHub links without any sign: issues by GH-1 and trackers' keys."""
_HASH = pattern(r"\b[0-9a-f]{7,40}\b")
"""What it takes for a commit. The digest of an image has 64 digits, and is copied as it is."""
_BREAK = "&#8203;"
"""A space of no width, which keeps what stands around it from being one word."""
_COMMAND = "##["
"""What begins a command to the runner of a CI job anywhere in a line."""
_MANY_MARKS = pattern(r"(?<=[\u0300-\u036f]{4})[\u0300-\u036f]+")
"""Accents beyond the fourth on one letter: they would pile up over the lines above."""


def visible(text: str, longest: int = LONGEST_SENTENCE) -> str:
    """Write out characters that are invisible or change how others look, and cut what is too long."""
    idle = _MANY_MARKS.sub("…", printable(text[: longest + 1])).replace(_COMMAND, "# # [")
    return idle if len(text) <= longest and len(idle) <= 2 * longest else f"{idle[: longest - 1]}…"


def html_text(text: object, longest: int = LONGEST_SENTENCE) -> str:
    """Make text for HTML, in an element or a quoted attribute."""
    return html.escape(visible(str(text), longest), quote=True)


def markdown_code(text: object) -> str:
    """Make a name for Markdown: nothing in it is Markdown, HTML, a mention, a link or the end of a table's cell."""
    return f"<code>{_references(visible(str(text), LONGEST_NAME))}</code>"


def markdown_text(text: object) -> str:
    return _references(visible(str(text)))


def _references(text: str) -> str:
    """Write every character that Markdown may act on as a reference, and break what would become a link."""
    apart = _HASH.sub(lambda match: re.sub("(.{6})(?=.)", "\\1\u200b", match[0]), text)
    apart = _NUMBERED.sub(lambda match: f"{match[0]}\u200b", apart)
    safe = _MARKDOWN.sub(lambda match: match[0] if match[0].isalpha() else f"&#{ord(match[0])};", apart)
    safe = safe.replace("://", f":{_BREAK}//").replace("www.", f"www{_BREAK}.").replace("--", "-&#45;")
    return _CALLS.sub(lambda match: match[0] + _BREAK, safe)


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
    What.NAMES: "names",
    What.PROBLEM: "problem",
    What.LISTENS: "listens at",
    What.ENVOY: "Envoy",
    What.CONTAINER: "container",
}
_SENTENCES = {
    What.UID: "recreated in the cluster: another uid",
    What.CONFIGURATION: "its proxy's configuration",
}
TO = " → "
"""Between what a route matches and its backends."""
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


def difference(change: PortDifference) -> str:
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
            return "; ".join(_routes(change.before, change.after))
        case What.SOURCES:
            return f"{where}, {_NAMES[change.what]}: {_sides(change, 'everybody')}"
        case _:
            return f"{where}{', ' if where else ''}{_NAMES[change.what]}: {_sides(change, 'none')}"


def _routes(before: Sequence[str], after: Sequence[str]) -> Iterator[str]:
    """Return routes that differ: the backends of one before → after, others as new or gone."""
    was, now = ({line.partition(TO)[0]: line.partition(TO)[2] for line in side} for side in (before, after))
    unique = len(was) == len(before) and len(now) == len(after)
    both = [match for match in was if unique and match in now]
    yield from (f"route {match}: {was[match]} → {now[match]}" for match in both[:MAX_LISTED])
    if len(both) > MAX_LISTED:
        yield f"and {len(both) - MAX_LISTED} more routes"
    new, removed = ([line for line in side if line.partition(TO)[0] not in both] for side in (after, before))
    if len(new) == len(removed) == 1:
        yield f"route {removed[0]} becomes {new[0]}"
        return
    for word, only in (("new", new), ("gone", removed)):
        if only:
            yield f"{'route' if len(only) == 1 else 'routes'} {word}: {listed(only)}"


def _sides(change: PortDifference, nothing: str) -> str:
    return f"{listed(change.before) or nothing} → {listed(change.after) or nothing}"


def reasons(service: ServiceChange) -> list[str]:
    """Return why a Service has this change: problems, differences, ports that can't be served."""
    return [*(str(problem.reason) for problem in service.problems), *differences(service), *closed(service)]


def differences(service: ServiceChange, apart: Collection[PortDifference] = ()) -> list[str]:
    """Return in what a Service differs, `apart` from some; what differs alike for several ports once."""
    ports: dict[PortDifference, list[str]] = {}
    for change in service.differences:
        if change.what is not What.PROBLEM and change not in apart:
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
    field: str = ""
    """The field of the Service that it is about, as in `Place.fields`."""


CONFLICTS = frozenset({Reason.IN_USE, Reason.PORT_IN_USE})
EXHAUSTIONS = frozenset({Reason.POOL_EXHAUSTED, Reason.HOST_LIMIT})
_OF_ADDRESSES = frozenset({Narrower.SERVICE, Narrower.FAMILY})
"""Change kinds that are reported by the removed Service, or by the addresses that it loses."""
_TOPICS_IN_ORDER = {topic: number for number, topic in enumerate(Topic)}


def alerts(report: Report) -> tuple[Alert, ...]:
    """Find all alerts of a report, by topic, then in the order of Services."""
    listed = [Alert(Topic.UNREADABLE, complaint) for complaint in report.complaints]
    listed += [
        Alert(Topic.POLICY, f"{each.message} (advisory)" if each.advisory else each.message)
        for each in report.violations
    ]
    for service in report.services:
        listed += _of_service(service)
    return tuple(sorted(listed, key=lambda alert: _TOPICS_IN_ORDER[alert.topic]))


def _of_service(service: ServiceChange) -> Iterator[Alert]:
    key = str(service.key)
    for problem in service.problems:
        yield Alert(_topic(problem.reason), problem.message, key)
    for port in service.after.ports if service.after else ():
        if port.problem in CONFLICTS:
            yield Alert(Topic.CONFLICT, port.message or f"{key} port {port.label}: {port.problem}", key, port.label)
    if service.change is Change.REMOVED and service.before:
        yield Alert(Topic.REMOVAL, f"{key}: {removed(service.before)}", key)
    if service.moved:
        yield Alert(Topic.ADDRESS, f"{key}: {moved(service)}", key, "addresses")
    for exposure in service.exposures:
        yield Alert(Topic.EXPOSURE, f"{key}: {reported(exposure)}", key, _field(exposure.kind, exposure.ports))
    for narrowing in service.narrowings:
        if narrowing.kind not in _OF_ADDRESSES:
            topic = Topic.REMOVAL if narrowing.kind is Narrower.PORT else Topic.NARROWING
            yield Alert(topic, f"{key}: {withdrawn(narrowing)}", key, _field(narrowing.kind, narrowing.ports))


_OF_PORTS = frozenset({Wider.PORT, Wider.OPENS, Narrower.PORT, Narrower.CLOSES})
_OF_SOURCES = frozenset({Wider.UNRESTRICTED, Wider.SOURCES, Narrower.RESTRICTED, Narrower.SOURCES})


def _field(kind: Wider | Narrower, ports: Sequence[str]) -> str:
    """Return the field that a change of what can be reached is about; empty for the whole."""
    if kind in _OF_PORTS and ports:
        return ports[0]
    return "sources" if kind in _OF_SOURCES else ""


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


def requests_summary(requests: SampleRequests) -> str:
    """Count the sample requests that go elsewhere: `2 of 40 sample requests go elsewhere`."""
    moved = len(requests.moved)
    of_all = f"of {counted(requests.compared, 'sample request')} {'goes' if moved == 1 else 'go'} elsewhere"
    return f"{moved or 'none'} {of_all}"


def moved_request(change: RequestChange) -> str:
    return f"{change.before} → {change.after}"
