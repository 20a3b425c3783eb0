"""What the terminal view shows: its lines, their order, groups and columns, and all about one load balancer. Pure.

A line is a load balancer or the head of a group, and is made of parts, each a text and a style: whatever a cluster
chose is text, and nothing in it is markup.

Not here: where rows come from (`commands.view`), and keys and drawing (`app`).
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import groupby, islice
from typing import NamedTuple

from msgspec import Struct, field
from rich.cells import cell_len, set_cell_size

from locallb.cli.failures import Refused
from locallb.cli.service_output import STYLES, Detail, Parts, detail_lines, field_parts
from locallb.cli.watching.board import View, count_states, urgency
from locallb.cli.watching.log import LogLevel, LogRecord, clock
from locallb.cli.watching.published import times
from locallb.model.identities import ROUTED, ObjectKey
from locallb.model.texts import clipped, counted, printable
from locallb.patterns import pattern
from locallb.planning.notices import DRAIN, FAULT
from locallb.planning.planned import Plan
from locallb.planning.service_rows import PortRow, Row, State, causes
from locallb.report.changes import PoolRoom
from locallb.report.wording import LONGEST_NAME, visible
from locallb.traffic.figures import TrafficRow
from locallb.watch.update_failures import Failures


class Rate(Struct, frozen=True):
    """What flows through a load balancer in a second."""

    requests: float = 0.0
    connections: float = 0.0
    failures: float = 0.0

    def __add__(self, other: Rate) -> Rate:
        return Rate(
            self.requests + other.requests, self.connections + other.connections, self.failures + other.failures
        )

    @property
    def text(self) -> str:
        """Write it in a few characters; empty where nothing flows."""
        flow = (self.requests, "req/s") if self.requests else (self.connections, "conn/s")
        parts = [flow, (self.failures, "failed")]
        return ", ".join(f"{_number(count)} {noun}" for count, noun in parts if count)


def _number(count: float) -> str:
    return f"{count:.0f}" if count >= 1 else f"{count:.1f}"


def rates(rows: Iterable[TrafficRow], seconds: float) -> dict[ObjectKey, Rate]:
    """Return what flowed in so many seconds, where something did."""
    found: dict[ObjectKey, Rate] = {}
    for row in rows:
        total = row.figures.total
        failures = total.failed_requests if row.is_http else total.failed_connections
        rate = Rate(total.requests / seconds, total.connections / seconds, failures / seconds)
        if row.answers and rate != Rate():
            found[row.key] = found.get(row.key, Rate()) + rate
    return found


class Card(Struct, frozen=True):
    """What is shown of a load balancer, and what a filter finds it by."""

    view: View
    id: str
    """What it is known by: of objects with one key each has another reason."""
    name: str
    addresses: str
    names: str
    ports: str
    why: str
    found_by: str
    urgency: tuple[int, float, ObjectKey]


def card(view: View) -> Card:
    """Write a row in texts that a terminal doesn't act on."""
    row = view.row
    texts = (
        visible(row.key.shown, LONGEST_NAME),
        " ".join(map(str, row.addresses)) or "-",
        visible(" ".join((*row.local_hosts[:1], *row.names)), LONGEST_NAME),
        " ".join(map(_port, row.ports)) or "-",
        _why(view),
    )
    return Card(view, _id(view), *texts, " ".join((*texts, str(row.state), *row.codes)).lower(), urgency(view))


def cards(views: Iterable[View], before: Iterable[Card]) -> tuple[Card, ...]:
    """Write rows; unchanged ones are taken from `before`."""
    written = {each.id: each for each in before}
    pairs = ((view, written.get(_id(view))) for view in views)
    return tuple(each if each and each.view == view else card(view) for view, each in pairs)


def _id(view: View) -> str:
    return f"{view.row.key} {view.row.reason}"


def _port(row: PortRow) -> str:
    return row.port.label if row.state is State.SERVING else f"{row.port.label}!"


def _why(view: View) -> str:
    """Return the reason of the state, otherwise the first notice."""
    row = view.row
    pairs = [(row.reason, row.message), *((notice.reason, notice.message) for notice in row.notices)]
    reason, message = next((pair for pair in pairs if pair[0]), ("", ""))
    sentence = message.removeprefix(str(row.key)).removeprefix(":").lstrip()
    return visible(f"{reason}: {sentence}" if message else reason)


class Scene(Struct, frozen=True):
    """A stack at one moment."""

    stack: str
    cards: tuple[Card, ...] = ()
    plan: Plan = field(default_factory=Plan)
    rates: Mapping[ObjectKey, Rate] = field(default_factory=dict)
    state: str = "reading the sources"
    """How it is kept up to date."""
    warnings: tuple[str, ...] = ()
    """What is in the way."""
    empty: tuple[str, ...] = ()
    """What to say where there is nothing to serve."""
    records: tuple[LogRecord, ...] = ()
    """What happened meanwhile."""
    failures: Failures = field(default_factory=dict)
    """Which updates fail."""
    rooms: tuple[PoolRoom, ...] = ()
    """What is used and free of each pool."""
    overview: tuple[Parts, ...] = ()
    """Lines about sources and pools."""

    @property
    def counts(self) -> str:
        """Write how many load balancers there are, and in which states; empty before the first reading."""
        if not self.cards and not self.empty:
            return ""
        return f"{counted(len(self.cards), 'load balancer')}{_in_states(self.cards, ': ')}"


def _in_states(cards: Sequence[Card], begin: str = "") -> str:
    states = count_states([card.view for card in cards])
    return begin * bool(cards) + ", ".join(f"{states[state]} {state}" for state in State if states[state])


class Grouping(StrEnum):
    """What lines are grouped by."""

    REASON = "reason"
    CLUSTER = "cluster"
    NAMESPACE = "namespace"
    NOTHING = "nothing"


class Sorting(StrEnum):
    """What lines are sorted by."""

    URGENCY = "urgency"
    NAME = "name"
    ADDRESS = "address"
    RATE = "rate"


class Query(Struct, frozen=True):
    """Which lines are asked for, and in which order."""

    text: str = ""
    """Words that all have to be found."""
    grouping: Grouping = Grouping.REASON
    sorting: Sorting = Sorting.URGENCY
    toggled: frozenset[str] = frozenset()
    """Groups that were opened, or closed where groups are open by themselves."""


class Group(Struct, frozen=True):
    """The head of a group."""

    id: str
    title: str
    state: State
    """The most urgent one in it."""
    cards: tuple[Card, ...]
    is_open: bool


class Item(Struct, frozen=True):
    """A load balancer in the list."""

    card: Card
    is_within: bool = False
    """Whether it is shown below the head of a group."""

    @property
    def id(self) -> str:
        return self.card.id


Line = Group | Item


def listing(cards: Sequence[Card], rates: Mapping[ObjectKey, Rate], query: Query) -> tuple[Line, ...]:
    """Return the lines of what is found, each load balancer once: in a line of its own, or within a group's."""
    terms = query.text.lower().split()
    found = [card for card in cards if all(term in card.found_by for term in terms)]
    found.sort(key=lambda card: _sorted_by(card, rates, query.sorting))
    lines: list[Line] = []
    for group, inner in _groups(found, query):
        if group:
            lines.append(group)
        if group is None or group.is_open:
            lines += [Item(card, is_within=group is not None) for card in inner]
    return tuple(lines)


def _sorted_by(card: Card, rates: Mapping[ObjectKey, Rate], sorting: Sorting) -> tuple[object, ...]:
    row = card.view.row
    if sorting is Sorting.URGENCY:
        return (*card.urgency, row.reason)
    first: tuple[object, ...] = ()
    if sorting is Sorting.ADDRESS:
        first = not row.addresses, *((address.version, int(address)) for address in row.addresses[:1])
    if sorting is Sorting.RATE:
        rate = rates.get(row.key, Rate())
        first = -rate.requests, -rate.connections
    return (*first, row.key, row.reason)


def _groups(cards: Sequence[Card], query: Query) -> Iterator[tuple[Group | None, Sequence[Card]]]:
    """Yield each group with its load balancers; None for those in no group, which come last."""
    match query.grouping:
        case Grouping.NOTHING:
            yield None, cards
        case Grouping.REASON:
            yield from _by_reason(cards, query)
        case Grouping.CLUSTER:
            yield from _by_place(cards, query, lambda key: str(key.cluster))
        case Grouping.NAMESPACE:
            yield from _by_place(cards, query, lambda key: f"{key.cluster}/{key.namespace}".rstrip("/"))


def _by_reason(cards: Sequence[Card], query: Query) -> Iterator[tuple[Group | None, Sequence[Card]]]:
    """Group load balancers with a common cause below one line, which has its remedy."""
    troubled = [card.view.row for card in cards if card.view.is_troubled]
    common = [each for each in causes((row.key, row.reason, row.message) for row in troubled) if each.is_common]
    places = {(key, cause.reason): number for number, cause in enumerate(common) for key in cause.keys}
    members: list[list[Card]] = [[] for _ in (*common, None)]
    for card in cards:
        row = card.view.row
        is_troubled = card.view.is_troubled and bool(row.message)
        members[places.get((row.key, row.reason), -1) if is_troubled else -1].append(card)
    for cause, inner in zip(common, members, strict=False):
        yield _group(f"{cause.reason}; {cause.remedy}", visible(cause.sentence), inner, query), inner
    yield None, members[-1]


def _by_place(
    cards: Sequence[Card], query: Query, place: Callable[[ObjectKey], str]
) -> Iterator[tuple[Group, Sequence[Card]]]:
    placed = sorted(((place(card.view.row.key), card) for card in cards), key=lambda pair: pair[0])
    for name, pairs in groupby(placed, key=lambda pair: pair[0]):
        members = [card for _, card in pairs]
        title = f"{visible(name, LONGEST_NAME) or 'this host'}  {_in_states(members)}"
        yield _group(name, title, members, query), members


def _group(name: str, title: str, cards: Sequence[Card], query: Query) -> Group:
    state = min(cards, key=lambda card: card.urgency).view.row.state
    is_open = (query.grouping is not Grouping.REASON) != (name in query.toggled)
    return Group(name, title, state, tuple(cards), is_open)


_Cell = Callable[[Card], tuple[str, str]]
"""Gives the text and the style of a cell."""


class Column(NamedTuple):
    """A column: what it shows of a load balancer, and how many cells it has."""

    head: str
    width: int
    cell: _Cell


_GAP = 2
_WIDE, _WIDER, _WIDEST = 60, 96, 150
"""Cells from which on there are addresses, ports, names."""


def columns(lines: Sequence[Line], rates: Mapping[ObjectKey, Rate], width: int) -> tuple[Column, ...]:
    """Return the columns for which there is room; the last one, for the reason, gets what is left."""
    cards = [line.card for line in lines if isinstance(line, Item)]
    inset = _GAP * any(isinstance(line, Group) for line in lines)

    def rate(card: Card) -> tuple[str, str]:
        each = rates.get(card.view.row.key, Rate())
        return each.text, "red" if each.failures else ""

    candidates: list[tuple[str, int, int, int, _Cell]] = [
        ("NAME", max(12, width * 2 // 5), inset, 0, lambda card: (card.name, "")),
        ("STATE", 8, 0, 0, lambda card: (str(card.view.row.state), STYLES[card.view.row.state])),
        ("ADDRESS", 40, 0, _WIDE, lambda card: (card.addresses, "")),
        ("RATE", 24, 0, _WIDE if rates else width + 1, rate),
        ("PORTS", 32, 0, _WIDER, lambda card: (card.ports, "")),
        ("NAMES", 48, 0, _WIDEST, lambda card: (card.names, "")),
    ]
    made: list[Column] = []
    for head, maximum, more, from_width, cell in candidates:
        if width >= from_width:
            longest = max((cell_len(cell(card)[0]) for card in cards), default=0)
            made.append(Column(head, min(maximum, max(len(head), longest + more)), cell))
    remaining = width - sum(column.width + _GAP for column in made)
    if remaining >= len("REASON"):
        made.append(Column("REASON", remaining, lambda card: (card.why, "")))
    return tuple(made)


def head_lines(
    scene: Scene, query: Query, lines: Sequence[Line], columns: Sequence[Column], width: int
) -> Iterator[Parts]:
    """Write the lines above the list: stack, sources and pools, warnings, upkeep, the query, and the columns."""
    yield ("local-lb", "bold"), (f"  stack {visible(scene.stack)}  {scene.counts}".rstrip(), "")
    yield from scene.overview
    warnings = scene.warnings[:_MAX_WARNINGS]
    for warning in warnings:
        yield from islice(wrapped(((visible(warning), "yellow"),), width), _WARNING_LINES // len(warnings))
    if len(scene.warnings) > _MAX_WARNINGS:
        yield ((f"{len(scene.warnings) - _MAX_WARNINGS} more warnings; `locallb status` shows them", "yellow"),)
    found = sum(len(line.cards) if isinstance(line, Group) else not line.is_within for line in lines)
    chosen = f"; {found} with {visible(query.text)!r}" if query.text else ""
    yield ((f"{scene.state}; by {query.grouping}, {query.sorting} first{chosen}", "dim"),)
    if lines:
        yield tuple((fitted(column.head, column.width) + " " * _GAP, "bold") for column in columns)
    elif scene.cards:
        yield (("Nothing here fits the filter; Escape shows all.", ""),)
    else:
        yield from (((visible(sentence), ""),) for sentence in scene.empty)


_MAX_WARNINGS, _WARNING_LINES = 3, 6
"""How many warnings are shown, and lines that they share."""


def line_parts(line: Line, columns: Sequence[Column], width: int) -> Parts:
    """Write a line in exactly as many cells as there are."""
    if isinstance(line, Group):
        return ((fitted(f"{'-' if line.is_open else '+'} {line.title}", width), STYLES[line.state]),)
    cells = [column.cell(line.card) for column in columns]
    if line.is_within:
        cells[0] = f"{' ' * _GAP}{cells[0][0]}", cells[0][1]
    parts = [
        (fitted(text, column.width) + " " * _GAP, style) for (text, style), column in zip(cells, columns, strict=True)
    ]
    return cropped(parts, width)


def fitted(text: str, width: int) -> str:
    """Cut or fill a text to so many cells."""
    length = cell_len(text)
    if length <= width:
        return text + " " * (width - length)
    return set_cell_size(text, max(0, width - 1)) + "…" * (width > 0)


def cropped(parts: Iterable[tuple[str, str]], width: int) -> Parts:
    """Cut or fill a line to so many cells."""
    made: list[tuple[str, str]] = []
    for text, style in parts:
        room = width - sum(cell_len(before) for before, _ in made)
        made.append((text if cell_len(text) <= room else set_cell_size(text, max(0, room)), style))
    return (*made, (" " * (width - sum(cell_len(text) for text, _ in made)), ""))


def explanation(line: Line | None) -> str:
    """Return the reason of a line in full; of a load balancer that serves, its names or notices."""
    if line is None:
        return ""
    if isinstance(line, Group):
        return line.title
    row = line.card.view.row
    sentences = [row.message or row.reason, *(notice.message for notice in row.notices)]
    return visible("; ".join(dict.fromkeys(filter(None, sentences)))) or line.card.names


def detail_parts(
    detail: Detail, scene: Scene, view: View, links: Sequence[tuple[str, str]], requests: Iterable[Parts]
) -> Iterator[Parts]:
    """Write all about one load balancer; `links` are labels and texts to copy, `requests` lines of its access log."""
    key = detail.row.key
    yield from detail_lines(detail)
    if failure := scene.failures.get(key):
        yield field_parts("failing", times(failure))
    if change := view.change:
        yield field_parts("updated", f"{clock(change.at)[:-4]}, {change.seconds * 1000:.0f} ms after the change")
    if text := scene.rates.get(key, Rate()).text:
        yield field_parts("traffic", text)
    for label, text in links:
        yield field_parts(label, text)
    for number, parts in enumerate(requests):
        yield (*field_parts("" if number else "requests"), *parts)
    yield from record_lines(of_object(scene.records, key))


def record_lines(records: Iterable[LogRecord]) -> Iterator[Parts]:
    """Write what happened, a line for each event."""
    for number, record in enumerate(records):
        style = {LogLevel.INFO: "", LogLevel.WARNING: "yellow", LogLevel.ERROR: "red"}[record.level]
        yield (*field_parts("" if number else "events", f"{clock(record.at)[:-4]}  "), (record.sentence, style))


def of_object(records: Iterable[LogRecord], key: ObjectKey) -> list[LogRecord]:
    """Return the records about one load balancer, the latest first."""
    name = str(key)
    mine = [each for each in records if name in {each.fields.get("service"), *_listed(each.fields.get("services"))}]
    return mine[::-1]


def _listed(names: object) -> Sequence[object]:
    return names if isinstance(names, list) else ()


KEYS = (
    ("arrows", "choose a line; Page Up, Page Down, Home and End as well"),
    ("Enter", "show all about a load balancer; open or close a group"),
    ("/", "filter: only lines that have all of these words; Escape shows all again"),
    ("s", "sort by urgency, name, address or rate"),
    ("g", "group by reason, cluster, namespace or nothing"),
    ("o", "open it in your browser"),
    ("y", "copy its URL; again: the next one"),
    ("c", "copy a curl command for it, with host, address and authority; again: the one for its next port"),
    ("l", "show its connections and requests as they end: `locallb logs`"),
    ("t", "show its traffic: `locallb top`"),
    ("v", "show the latest events of the stack"),
    ("e", "show what `locallb help REASON` says of the reason"),
    ("f", "make some of its connections or requests fail: `locallb fault`, which you can edit first"),
    ("d", "keep new connections away from its backends: `locallb drain`, which you can edit first"),
    ("?", "show these keys"),
    ("q", "close the view, and end the `watch` that shows it; Services go on"),
    ("Ctrl-Z", "suspend it; `fg` brings it back"),
)


def key_lines(render: Callable[[str], str]) -> Iterator[Parts]:
    """Write what each key does."""
    for name, text in KEYS:
        yield field_parts(name, render(text))


def command_about(command: str, row: Row) -> str:
    """Write a command about a load balancer that its user may edit before it is run. Raises Refused for an odd name."""
    if not str(row.key).isprintable():
        raise Refused(f"the name {clipped(str(row.key))} can't be written in a command")
    name = shlex.quote(str(row.key))
    if command == "drain":
        return f"drain {name}{' --undo' if any(each.reason == DRAIN for each in row.ordered) else ''}"
    if any(each.reason == FAULT for each in row.ordered):
        return f"fault {name} --undo"
    return f"fault {name} {'--status 503:10%' if row.key.kind in ROUTED else '--refuse 10%'} --for 5m"


_PIECES = pattern(r"\s*\S+|\s+$")


def wrapped(parts: Parts, width: int, indent: int = 0) -> Iterator[Parts]:
    """Break a line at spaces, and where a word is too long; further lines are indented."""
    line: list[tuple[str, str]] = []
    room, further = width, max(1, width - indent)
    for text, style in parts:
        for word in _PIECES.findall(printable(text)):
            rest = word
            if cell_len(rest) > room and room < further:
                yield tuple(line)
                line, room, rest = [(" " * indent, "")], further, rest.lstrip()
            while cell_len(rest) > room:
                begin = _begin(rest, room)
                yield (*line, (begin, style))
                line, room, rest = [(" " * indent, "")], further, rest[len(begin) :]
            line.append((rest, style))
            room -= cell_len(rest)
    yield tuple(line)


def _begin(text: str, width: int) -> str:
    """Return as many characters as there is room for, at least one."""
    length = max(1, min(width, len(text)))
    while length > 1 and cell_len(text[:length]) > width:
        length -= 1
    return text[:length]
