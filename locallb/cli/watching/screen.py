"""The live view: a header, the Services that matter now, and the latest events, as large as the terminal.

Drawn only when something happened, at most a few times a second. Times are shown, not ages: an idle screen stays true.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct, field
from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from locallb.cli.service_output import STYLES, next_step
from locallb.cli.watching.board import Board, View, by_urgency, count_states
from locallb.cli.watching.log import LogLevel, LogRecord, clock
from locallb.model.texts import counted
from locallb.planning.service_rows import PortRow, Row, State, grouped
from locallb.report.changes import rooms_for
from locallb.report.wording import LONGEST_NAME, visible

RETAINED = 200
"""Records that are remembered for the screen."""
MAX_PARTS = 6
"""Sources and pools that the head names."""
_NOTHING_YET = "No Service of type LoadBalancer yet; one that is created shows up here."
_LEVELS = {LogLevel.INFO: "", LogLevel.WARNING: "yellow", LogLevel.ERROR: "red"}
_NARROW = 50
"""Columns below which names are cut rather than states."""
_LEAST_EVENTS, _HEAD_AND_GAPS = 3, 7
_ENDINGS = "Ctrl-C stops watching; Services go on", "Ctrl-C stops watching"
"""The longest that there is room for."""


class Screen(Struct):
    """The content of the screen; printing draws it for the terminal's current size."""

    stack: str
    board: Board = field(default_factory=Board)
    views: Sequence[View] = ()
    records: deque[LogRecord] = field(default_factory=lambda: deque(maxlen=RETAINED))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width, height = options.max_width, options.height or console.height
        is_roomy = height > 2 * _HEAD_AND_GAPS
        events = max(_LEAST_EVENTS, min(height // 3, len(self.records))) if is_roomy else 0
        rows, common = grouped([view.row for view in self.views])
        room = max(1, height - _HEAD_AND_GAPS - is_roomy - bool(self.board.delays) - len(common[:MAX_PARTS]) - events)
        for line in (*self._head(), *([self._next(width)] if is_roomy else ())):
            line.truncate(width, overflow="ellipsis")
            yield line
        yield Text("")
        for cause in common[:MAX_PARTS]:
            line = Text(visible(cause.sentence), STYLES[State.REJECTED], no_wrap=True)
            line.truncate(width, overflow="ellipsis")
            yield line
        single = {*map(id, rows)}
        views = by_urgency([view for view in self.views if id(view.row) in single])
        shown = views[: max(1, room - 1)]
        yield from _table(shown, width)
        yield self._rest(views[len(shown) :])
        for record in list(self.records)[-events:] if events else ():
            line = Text(f"{clock(record.at)} {visible(record.sentence)}", _LEVELS[record.level], no_wrap=True)
            line.truncate(width, overflow="ellipsis")
            yield line

    def _head(self) -> Iterator[Text]:
        states = count_states(list(self.views))
        counts = ", ".join(f"{states[state]} {state}" for state in State if states[state])
        title = Text.assemble(
            ("local-lb watch", "bold"), f"  stack {visible(self.stack)}  {counted(len(self.views), 'Service')}"
        )
        yield title.append(f": {counts}" if counts else "")
        yield self._sources()
        yield self._pools()
        yield self._progress()
        if self.board.delays:
            yield self._delays()

    def _sources(self) -> Text:
        settings = self.board.planned.settings if self.board.planned else None
        text = Text("sources  ")
        sources = settings.sources if settings else ()
        for source in sources[:MAX_PARTS]:
            since = self.board.stale.get(source.cluster)
            text.append(str(source.cluster)).append(
                f" stale since {clock(since)[:-4]}" if since else " ok", "yellow" if since else "green"
            )
            text.append("  ")
        return text.append(f"and {len(sources) - MAX_PARTS} more" if len(sources) > MAX_PARTS else "")

    def _pools(self) -> Text:
        planned = self.board.planned
        text = Text("pools    ")
        if planned and planned.snapshot and planned.settings:
            given = {address for placement in planned.plan.placements for address in placement.addresses}
            for room in rooms_for(given, planned.snapshot, planned.settings)[:MAX_PARTS]:
                text.append(f"{visible(room.pool, LONGEST_NAME)} {room.family} ")
                rest = f", {room.unavailable} unavailable" if room.unavailable else ""
                usage = f"{room.used} of {room.size} used, {room.free} free{rest}  "
                text.append(usage, "" if room.free > 0 else "yellow")
        proxies = len(planned.plan.proxies) if planned else 0
        answering = sum(answer is not None for answer in self.board.observed.values())
        return text.append(f"proxies {proxies}, {answering} answer", "" if answering >= proxies else "yellow")

    def _progress(self) -> Text:
        board = self.board
        if board.failure:
            return Text(f"failing  {visible(board.failure)}", "red")
        when = f"converged {clock(board.converged)[:-4]}" if board.converged else "converging"
        text = Text(f"loop     {when}")
        if board.planned:
            text.append(f"  planned in {board.planned.seconds * 1000:.0f} ms")
        text.append(f"  {board.open} to do" if board.open else "")
        return text.append(f"  {board.waiting} tried again later" if board.waiting else "", "yellow")

    def _delays(self) -> Text:
        sentences = [delay.sentence(f"since {clock(delay.since)[:-4]}") for delay in self.board.delays]
        return Text(f"waiting  {visible('; '.join(sentences))}", "yellow")

    def _next(self, width: int) -> Text:
        """Return what to do next, each part complete or left out: half a command can't be copied."""
        step = visible(next_step([view.row for view in self.views]))
        parts = [(step, ending) for ending in (*_ENDINGS, "")] + [("", ending) for ending in _ENDINGS]
        lines = [
            Text.assemble("next     ", (first, "bold"), "  " if first and last else "", (last, "dim"))
            for first, last in dict.fromkeys(parts)
            if first or last
        ]
        return next((line for line in lines if line.cell_len <= width), Text(""))

    @property
    def farewell(self) -> str:
        """The text that is printed once the terminal is restored, for the user who stopped the watch."""
        serving = count_states(list(self.views))[State.SERVING]
        going_on = f"{counted(serving, 'Service')} {'goes' if serving == 1 else 'go'} on serving" if serving else ""
        return (
            f"Stopped watching{f'; {going_on}' if going_on else ''}. `locallb status` shows what is there,"
            " `locallb watch` goes on, `locallb destroy` removes it all."
        )

    def _rest(self, remaining: Sequence[View]) -> Text:
        if not remaining:
            return Text("" if self.views else _NOTHING_YET if self.board.planned else "Reading the sources.")
        troubled = sum(view.is_troubled for view in remaining)
        return Text(f"{len(remaining)} more, {f'{troubled} with problems' if troubled else 'all serving'}", "dim")


class _Column(Struct, frozen=True):
    """A column: from which width of the terminal on, and how wide at most."""

    head: str
    cell: Callable[[View], tuple[str, str]]
    from_width: int
    maximum: int


def _places(row: Row) -> str:
    """Return its name below `localhost`, if it has one, and its addresses."""
    return " ".join((*row.local_hosts[:1], *map(str, row.addresses))) or "-"


_COLUMNS = (
    _Column("SERVICE", lambda view: (visible(view.row.key.shown, LONGEST_NAME), ""), 0, 48),
    _Column("STATE", lambda view: (str(view.row.state), STYLES[view.row.state]), 0, 10),
    _Column("ADDRESS", lambda view: (_places(view.row), ""), 70, 48),
    _Column("PORTS", lambda view: (" ".join(map(_port, view.row.ports)) or "-", ""), 78, 30),
    _Column("CHANGED", lambda view: (clock(view.change.at)[:-4] if view.change else "-", ""), 110, 8),
    _Column("TOOK", lambda view: (_took(view.change.seconds) if view.change else "-", ""), 110, 8),
    _Column("WHY", lambda view: (_why(view), ""), 50, 600),
)
_GAP = 2


def _table(views: Sequence[View], width: int) -> Iterator[Text]:
    """Return the table's lines; narrow terminals get fewer columns, and the last one gets what is left."""
    columns = [column for column in _COLUMNS if column.from_width <= width]
    cells = [[Text(*column.cell(view)) for column in columns] for view in views]
    heads = [Text(column.head, "bold") for column in columns]
    widths = [
        min(column.maximum, max(cell.cell_len for cell in cells_of_column))
        for column, cells_of_column in zip(columns, zip(heads, *cells, strict=True), strict=True)
    ]
    if width < _NARROW:  # the name gives way, so that the state is seen
        widths[0] = max(1, min(widths[0], width - sum(widths[1:2]) - _GAP))
    for row in (heads, *cells):
        line = Text(no_wrap=True)
        for cell, room in zip(row, widths, strict=True):
            cell.truncate(room, overflow="ellipsis")
            line.append_text(cell).append(" " * (room - cell.cell_len + _GAP))
        line.rstrip()
        line.truncate(width, overflow="ellipsis")
        yield line


def _why(view: View) -> str:
    """Return the reason of the state, otherwise the first notice."""
    row = view.row
    pairs = [(row.reason, row.message), *((notice.reason, notice.message) for notice in row.notices)]
    reason, message = next((pair for pair in pairs if pair[0]), ("", ""))
    return visible(f"{reason}: {message.removeprefix(f'{row.key}: ')}") if message else reason


def _port(row: PortRow) -> str:
    return row.port.label if row.state is State.SERVING else f"{row.port.label}!"


def _took(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds < 10 else f"{seconds:.0f} s"  # noqa: PLR2004 - readable
