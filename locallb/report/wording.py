"""Texts of a report that all formats share, and escaping of names from clusters for Markdown, HTML and a terminal.

Names and annotations come from everyone with the right to open a pull request. Control characters and the ones that
turn or hide text are written out, long texts are cut, and every character that a format would act on becomes a
reference. Not here: the formats themselves (`report.html`, `markdown`).
"""

from __future__ import annotations

import html
import re
from collections.abc import Collection, Iterator, Sequence

from msgspec.structs import replace

from locallb.model.texts import printable
from locallb.report.alerts import MAX_LISTED, listed
from locallb.report.changes import Change, PortDifference, Report, ServiceChange, What
from locallb.report.sides import Balancer

LONGEST_NAME = 120
LONGEST_SENTENCE = 600
"""Characters of a name and of a sentence that are shown."""
_MARKDOWN = re.compile(r"[^A-Za-z0-9 ,.;:/()=-]")
_CALLS = re.compile(r"&#(?:33|35|36|37|38|64|94|126);")
"""Signs with which GitHub and GitLab begin mentions, issues, labels and the like, as references."""
_NUMBERED = re.compile(r"(?i:\bgh(?=-\d))|\b[A-Z][A-Z0-9]+(?=-\d)")
"""What GitHub links without any sign: issues by GH-1 and trackers' keys."""
_HASH = re.compile(r"\b[0-9a-f]{7,40}\b")
"""What it takes for a commit. The digest of an image has 64 digits, and is copied as it is."""
_BREAK = "&#8203;"
"""A space of no width, which keeps what stands around it from being one word."""
_COMMAND = "##["
"""What begins a command to the runner of a CI job anywhere in a line."""
_MANY_MARKS = re.compile(r"(?<=[\u0300-\u036f]{4})[\u0300-\u036f]+")
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
