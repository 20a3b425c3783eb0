"""The terminal view as an application of Textual: keys, lines and the texts around them.

It draws a few times a second at most, and only lines in sight. Texts are drawn as segments, never as markup.

Not here: what the lines are (`listing`), where the data comes from, and what keys do (`commands.view`).
"""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from enum import StrEnum
from functools import cache
from threading import Lock
from types import FrameType
from typing import ClassVar, Protocol, TypeVar

from msgspec.structs import replace
from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual import events
from textual.app import App, ComposeResult, SuspendNotSupported
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.message import Message
from textual.screen import Screen
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.timer import Timer
from textual.widgets import Input, Static

from locallb.cli.failures import Refused
from locallb.cli.service_output import Parts
from locallb.cli.view.listing import (
    Card,
    Column,
    Group,
    Grouping,
    Item,
    Line,
    Query,
    Scene,
    columns,
    command_about,
    cropped,
    explanation,
    head_lines,
    key_lines,
    line_parts,
    listing,
    record_lines,
    wrapped,
)
from locallb.model.errors import ClientError
from locallb.report.wording import visible

_HINTS = "/ filter  s sort  g group  Enter detail  o open  y URL  c curl  ? keys  q quit"
_HINTS_BELOW = "Esc back  q quit"
_HINTS_OF_ONE = "Esc back  o open  y URL  c curl  l logs  t traffic  e reason  f fault  d drain"
_MESSAGE = 8.0
"""Seconds for which a message is shown in the place of the hints."""
_INDENT = 13
"""Cells before the texts of a detail."""
_LOW, _TINY = 30, 10
"""Lines of a terminal below which a reason has two lines, and below which it has none."""
_ROOMY = 15
"""Lines from which on the sources and pools are shown."""
_PACE = 1.0
"""Seconds after which a detail is drawn again, for requests that ended meanwhile."""
_OF_TERMINALS = (signal.SIGTSTP, signal.SIGCONT, signal.SIGWINCH, signal.SIGTTIN, signal.SIGTTOU)
"""Signals for which Textual sets handlers."""


class Actions(Protocol):
    """What keys do to a load balancer of a scene. What can't be done raises Refused or ClientError."""

    @property
    def render(self) -> Callable[[str], str]:
        """Completes commands in sentences."""

    def detail(self, scene: Scene, card: Card) -> Iterable[Parts]:
        """Return all about it, a line for each thing."""

    def release(self) -> None:
        """Let other programs read what only one may read: no detail is shown now."""

    def urls(self, scene: Scene, card: Card) -> Sequence[str]:
        """Return where it is found: at least one."""

    def curls(self, scene: Scene, card: Card) -> Sequence[str]:
        """Return commands for a request to it, as a shell reads them: at least one."""

    def open(self, scene: Scene, card: Card) -> str:
        """Open it in the user's browser; return what to say of that."""

    def run(self, terms: Sequence[str]) -> None:
        """Run a command of ours in this terminal, and wait until the user has read what it printed."""


class Lines(ScrollView, can_focus=True):
    """Lines of which one is chosen, if `is_list`; only those in sight are drawn."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)"),
        Binding("down,j", "move(1)"),
        Binding("pageup", "page(-1)"),
        Binding("pagedown,space", "page(1)"),
        Binding("home", "move(-1000000)"),
        Binding("end", "move(1000000)"),
    ]

    class Moved(Message):
        """Another line was chosen."""

    class Chosen(Message):
        """The line was clicked twice."""

    def __init__(self, draw: Callable[[int, int], Parts], *, is_list: bool = False) -> None:
        """Draw lines by `draw`, which gets the number of a line and its cells."""
        super().__init__()
        self._draw, self._is_list = draw, is_list
        self.count = self.cursor = 0

    @property
    def cells(self) -> int:
        return self.scrollable_content_region.width or self.size.width

    def show(self, count: int, cursor: int = 0) -> None:
        """Show so many lines, and choose one; it stays in sight if the one before was."""
        follows = self._is_list and (self._shows_cursor or self.scroll_offset.y >= count)
        self.count, self.cursor = count, max(0, min(cursor, count - 1))
        self.virtual_size = Size(self.cells, count)
        if follows:
            self._follow()
        self.refresh()

    def action_move(self, by: int) -> None:
        if not self._is_list:
            self.scroll_to(y=self.scroll_offset.y + by, animate=False)
            return
        self.cursor = max(0, min(self.cursor + by, self.count - 1))
        self._follow()
        self.refresh()
        self.post_message(self.Moved())

    def action_page(self, by: int) -> None:
        self.action_move(by * max(1, self.size.height - 1))

    def render_line(self, y: int) -> Strip:
        number, style = y + self.scroll_offset.y, self.rich_style
        if number >= self.count:
            return Strip.blank(self.cells, style)
        if self._is_list and number == self.cursor:
            style += Style(reverse=True)
        parts = cropped(self._draw(number, self.cells), self.cells)
        return Strip([Segment(text, style + _style(name)) for text, name in parts if text])

    def on_click(self, event: events.Click) -> None:
        number = event.y + self.scroll_offset.y
        if self._is_list and number < self.count:
            self.action_move(number - self.cursor)
            if event.chain > 1:
                self.post_message(self.Chosen())

    @property
    def _shows_cursor(self) -> bool:
        return 0 <= self.cursor - self.scroll_offset.y < max(1, self.size.height)

    def on_resize(self) -> None:
        if self._is_list:
            self._follow()

    def _follow(self) -> None:
        """Bring the chosen line into sight."""
        if not self._shows_cursor:
            is_above = self.cursor < self.scroll_offset.y
            target = self.cursor if is_above else self.cursor - max(1, self.size.height) + 1
            self.scroll_to(y=target, animate=False, force=True, immediate=True)


class Page(Screen[None]):
    """A page of lines, below them a prompt for a filter or a command, and hints in the last line."""

    hints: str
    _timer: Timer | None = None
    """Ends a message."""

    def compose(self) -> ComposeResult:
        yield Input(id="prompt", select_on_focus=False)
        yield Static(id="hints")

    @property
    def card(self) -> Card | None:
        """Return what keys are about."""
        return None

    @property
    def reason(self) -> str:
        """Return the code to explain; empty where nothing is wrong."""
        return next(iter(self.card.view.row.codes), "") if self.card else ""

    def on_mount(self) -> None:
        self.set_focus(self.query_one(Lines))
        self.inform("")

    def on_resize(self) -> None:
        self.call_after_refresh(self.draw)

    def on_screen_resume(self) -> None:
        self.call_after_refresh(self.draw)

    def draw(self) -> None:
        """Draw the present scene."""

    def inform(self, sentence: str) -> None:
        """Show a whole sentence in the place of the hints for a while; without one, show these in one line."""
        hints = self.query_one("#hints", Static)
        hints.styles.height = "auto" if sentence else 1
        hints.update(Text(sentence or self.hints, "bold" if sentence else "dim"))
        if self._timer:
            self._timer.stop()
        self._timer = self.set_timer(_MESSAGE, lambda: self.inform("")) if sentence else None

    def ask(self, text: str, hints: str = "Enter runs it  Escape doesn't") -> None:
        """Let the user write something, beginning with this."""
        line = self.query_one("#hints", Static)
        line.styles.height = 1
        line.update(Text(hints, "dim"))
        prompt = self.query_one(Input)
        prompt.display = True
        prompt.value, prompt.cursor_position = text, len(text)
        self.set_focus(prompt)  # at once: keys that follow are for it

    def action_leave(self) -> None:
        """Close the prompt."""
        self.query_one(Input).display = False
        self.set_focus(self.query_one(Lines))
        self.inform("")

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.action_leave()
        self.take(event.value)

    def take(self, text: str) -> None:
        """Take what was written: a command of ours, which is run."""
        try:
            terms = shlex.split(text)
        except ValueError as error:
            self.inform(f"this can't be run: {error}")
            return
        if terms and isinstance(self.app, ViewApp):
            self.app.run_command(terms)


class Below(Page):
    """A page below the list: all about one load balancer, or the keys."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,backspace", "back")]

    def __init__(self, made: Callable[[], Iterable[Parts]], card: Callable[[], Card | None], hints: str) -> None:
        super().__init__()
        self._made, self._card, self.hints = made, card, hints
        self._lines: list[Parts] = []

    @property
    def card(self) -> Card | None:
        return self._card()

    def compose(self) -> ComposeResult:
        yield Lines(lambda number, _cells: self._lines[number])
        yield from super().compose()

    def on_mount(self) -> None:
        if self.card:
            self.set_interval(_PACE, lambda: self.draw() if self.is_current else None)

    def draw(self) -> None:
        lines = self.query_one(Lines)
        self._lines = [line for parts in self._made() for line in wrapped(parts, max(1, lines.cells), _INDENT)]
        lines.show(len(self._lines))

    def action_back(self) -> None:
        if self.query_one(Input).display:
            self.action_leave()
        else:
            self.dismiss()


class ListPage(Page):
    """The list of load balancers."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("slash", "filter"),
        Binding("escape", "clear"),
        Binding("enter", "choose"),
        Binding("s", "sort"),
        Binding("g", "group"),
    ]
    hints = _HINTS

    def __init__(
        self, scene: Callable[[], Scene], opened: Callable[[Card], None], render: Callable[[str], str]
    ) -> None:
        super().__init__()
        self._scene, self._opened, self._render_commands = scene, opened, render
        self._lines: tuple[Line, ...] = ()
        self._columns: tuple[Column, ...] = ()
        self._filters = False
        """Whether the prompt asks for a filter."""
        self.query_now = Query()

    def compose(self) -> ComposeResult:
        yield Static(id="head")
        yield Lines(lambda number, cells: line_parts(self._lines[number], self._columns, cells), is_list=True)
        yield Static(id="why")
        yield from super().compose()

    @property
    def line(self) -> Line | None:
        """Return the chosen line."""
        cursor = self.query_one(Lines).cursor
        return self._lines[cursor] if cursor < len(self._lines) else None

    @property
    def card(self) -> Card | None:
        return self.line.card if isinstance(self.line, Item) else None

    @property
    def reason(self) -> str:
        group = self.line if isinstance(self.line, Group) and self.query_now.grouping is Grouping.REASON else None
        return group.cards[0].view.row.reason if group else super().reason

    def draw(self) -> None:
        """List the present scene; the chosen line stays chosen, wherever it moves."""
        scene, lines, chosen = self._scene(), self.query_one(Lines), self.line
        self._lines = listing(scene.cards, scene.rates, self.query_now)
        self._columns = columns(self._lines, scene.rates, max(1, lines.cells))
        places = (number for number, line in enumerate(self._lines) if chosen and line.id == chosen.id)
        lines.show(len(self._lines), next(places, lines.cursor))
        if self.size.height < _ROOMY:
            scene = replace(scene, overview=())
        head = head_lines(scene, self.query_now, self._lines, self._columns, max(1, self.size.width))
        self.query_one("#head", Static).update(_text(cropped(parts, self.size.width) for parts in head))
        self._explain()

    def _explain(self) -> None:
        """Show the reason of the chosen line in full, as far as there is room."""
        height, why = self.size.height, self.query_one("#why", Static)
        maximum = 0 if height < _TINY else 2 if height < _LOW else 5
        parts = wrapped(((self._render_commands(explanation(self.line)), ""),), max(1, self.size.width))
        why.styles.height = maximum
        why.update(_text([*parts][:maximum]))

    def on_lines_moved(self) -> None:
        self._explain()

    def on_lines_chosen(self) -> None:
        self.action_choose()

    def action_choose(self) -> None:
        """Open or close a group, or show all about a load balancer."""
        if isinstance(self.line, Group):
            self._ask_for(toggled=self.query_now.toggled ^ {self.line.id})
        elif self.card:
            self._opened(self.card)

    def action_sort(self) -> None:
        self._ask_for(sorting=_following(self.query_now.sorting))

    def action_group(self) -> None:
        self._ask_for(grouping=_following(self.query_now.grouping), toggled=frozenset())

    def action_filter(self) -> None:
        self._filters = True
        self.ask(self.query_now.text, "Enter keeps the filter  Escape shows all")

    def action_clear(self) -> None:
        """Close the prompt; where it asks for no command, show all again."""
        is_command = self.query_one(Input).display and not self._filters
        self.action_leave()
        self._filters = False
        if not is_command:
            self._ask_for(text="")

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        if self._filters:
            self._ask_for(text=event.value)

    def take(self, text: str) -> None:
        if self._filters:
            self._filters = False
            self._ask_for(text=text)
        else:
            super().take(text)

    def _ask_for(self, **fields: object) -> None:
        self.query_now = replace(self.query_now, **fields)
        self.draw()


_Choice = TypeVar("_Choice", bound=StrEnum)


def _following(value: _Choice) -> _Choice:
    """Return the next value of an enumeration, after the last one the first."""
    values = list(type(value))
    return values[(values.index(value) + 1) % len(values)]


def _is_alone() -> bool:
    """Return whether this process is what a terminal was opened for: no shell sees that it stopped."""
    return os.getsid(0) == os.getpid()


@contextmanager
def handlers_restored() -> Iterator[None]:
    """Leave the handlers of signals as they were."""
    before = {number: signal.getsignal(number) for number in _OF_TERMINALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler or signal.SIG_DFL)


@cache
def _style(name: str) -> Style:
    return Style.parse(name)


def _text(lines: Iterable[Parts]) -> Text:
    """Make a text of lines, in which nothing is markup."""
    return Text("\n").join(Text.assemble(*parts, no_wrap=True) for parts in lines)


class ViewApp(App[None]):
    """The list, what is below it, and what keys do. `offer` and `stop` may be called from any thread."""

    ENABLE_COMMAND_PALETTE = False
    CSS = """
    Screen { background: ansi_default; color: ansi_default; overflow: hidden; }
    #head { height: auto; max-height: 60%; }
    #hints { max-height: 50%; }
    #prompt { display: none; border: none; height: 1; padding: 0; background: ansi_default; color: ansi_default; }
    Lines { height: 1fr; overflow-x: hidden; background: ansi_default; color: ansi_default; scrollbar-gutter: stable;
        scrollbar-size-vertical: 1; scrollbar-background: ansi_default; scrollbar-color: ansi_bright_black; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q,ctrl+c,ctrl+q", "quit"),
        Binding("ctrl+z", "suspend_process"),
        Binding("o", "open"),
        Binding("y", "copy('url')"),
        Binding("c", "copy('curl')"),
        Binding("l", "run_about('logs')"),
        Binding("t", "run_about('top')"),
        Binding("v", "events"),
        Binding("e", "show_reason"),
        Binding("f", "ask_about('fault')"),
        Binding("d", "ask_about('drain')"),
        Binding("question_mark", "keys"),
    ]

    class Offered(Message):
        """There is another scene."""

    def __init__(self, scene: Scene, actions: Actions, begun: Callable[[ViewApp], object] = lambda _app: None) -> None:
        """Show this scene at first; `begun` is called in the event loop, once there is one."""
        super().__init__(ansi_color=True)
        self.scene = scene
        self.fault: BaseException | None = None
        """What broke off unexpectedly."""
        self._actions = actions
        self._begun = begun
        self._copied = "", "", 0
        """What was copied last: of which kind, of which one, and the number of it."""
        self._offered: Scene | None = None
        self._offer_lock = Lock()
        self._own_loop: asyncio.AbstractEventLoop | None = None
        self._stopped = False

    def get_default_screen(self) -> Screen[None]:
        return ListPage(lambda: self.scene, self._open_below, self._actions.render)

    def on_mount(self) -> None:
        self._own_loop = asyncio.get_running_loop()
        if hasattr(self._driver, "_sigcont_application"):
            signal.signal(signal.SIGTSTP, self._suspended)
            signal.signal(signal.SIGCONT, self._continued)
        self._begun(self)
        if self._stopped:
            self.exit()

    def _suspended(self, number: int, frame: FrameType | None) -> None:
        """Stop, unless no shell is there to continue it."""
        if not _is_alone():
            self._driver._sigtstp_application(number, frame)  # type: ignore[union-attr]  # noqa: SLF001 - its handler

    def _continued(self, number: int, frame: FrameType | None) -> None:
        """Draw again; Textual's own handler would begin a second time after a stop that it didn't see."""
        if getattr(self._driver, "_must_signal_resume", False):
            self._driver._sigcont_application(number, frame)  # type: ignore[union-attr]  # noqa: SLF001 - see above
        elif self._own_loop:
            self._own_loop.call_soon_threadsafe(lambda: self.refresh(layout=True))

    def on_key(self, event: events.Key) -> None:
        """Give the prompt what was typed faster than it got the focus: keys go to what had it as they came."""
        if isinstance(self.focused, Input) and event.is_printable and event.character:
            event.prevent_default()
            self.focused.insert_text_at_cursor(event.character)

    def action_suspend_process(self) -> None:
        """Stop this job, with what a shell started beside us; where no shell is, nothing would continue it."""
        if _is_alone():
            self._page.inform("no shell is here that could bring the view back")
        elif self._driver and self._driver.can_suspend:
            os.kill(0, signal.SIGTSTP)

    def offer(self, scene: Scene) -> None:
        """Show another scene soon; of several offered meanwhile, the last."""
        with self._offer_lock:
            is_first, self._offered = self._offered is None, scene
        if is_first:
            self.post_message(self.Offered())

    def stop(self) -> None:
        """Close the view, unless it is closed."""
        self._stopped = True
        if self._own_loop:
            with suppress(RuntimeError):  # the event loop has ended
                self._own_loop.call_soon_threadsafe(self.exit)

    def on_view_app_offered(self) -> None:
        with self._offer_lock:
            self.scene, self._offered = self._offered or self.scene, None
        if self._page.is_mounted:
            self._page.draw()

    @property
    def _page(self) -> Page:
        page = self.screen
        if not isinstance(page, Page):
            raise TypeError(page)
        return page

    def _chosen(self) -> Card | None:
        """Return the chosen load balancer, as it is now; where there is none, show how to choose one."""
        if not self._page.card:
            self._page.inform("choose a load balancer first; Enter opens a group")
        return self._page.card

    def _open_below(self, card: Card) -> None:
        def now() -> Card:
            key = card.view.row.key
            return next((each for each in self.scene.cards if each.view.row.key == key), card)

        def made() -> Iterable[Parts]:
            parts = self._actions.detail(self.scene, now())
            return (tuple((self._actions.render(text), style) for text, style in line) for line in parts)

        self.push_screen(Below(made, now, _HINTS_OF_ONE), lambda _none: self._actions.release())

    def action_keys(self) -> None:
        self.push_screen(Below(lambda: key_lines(self._actions.render), lambda: None, _HINTS_BELOW))

    def action_events(self) -> None:
        """Show the latest events of all load balancers."""

        def made() -> Iterable[Parts]:
            return record_lines(self.scene.records[::-1]) if self.scene.records else [(("Nothing happened yet.", ""),)]

        self.push_screen(Below(made, lambda: None, _HINTS_BELOW))

    def action_open(self) -> None:
        """Open it in the browser, which gets the terminal as long as it needs that to start."""

        def opened(card: Card) -> str:
            with suppress(SuspendNotSupported), self.suspend():
                return self._actions.open(self.scene, card)
            return self._actions.open(self.scene, card)

        self._about(opened)

    def action_copy(self, what: str) -> None:
        """Copy the first URL or curl command of the chosen one; the same key again copies the next."""

        def copy(card: Card) -> str:
            texts = (self._actions.urls if what == "url" else self._actions.curls)(self.scene, card)
            is_again = self._copied[:2] == (what, card.id)
            number = (self._copied[2] + 1) % len(texts) if is_again else 0
            self._copied = what, card.id, number
            self.copy_to_clipboard(texts[number])
            of_several = f" ({number + 1} of {len(texts)}, the same key copies the next)" if texts[1:] else ""
            return f"copied, if your terminal allows it{of_several}: {texts[number]}"

        self._about(copy)

    def action_run_about(self, command: str) -> None:
        if card := self._chosen():
            self.run_command((command, str(card.view.row.key)))

    def action_show_reason(self) -> None:
        """Show what the documentation has about the reason."""
        if reason := self._page.reason:
            self.run_command(("help", reason))
        elif self._chosen():
            self._page.inform("nothing is wrong with it")

    def action_ask_about(self, command: str) -> None:
        """Let the user edit a command before it changes anything."""
        if card := self._chosen():
            try:
                self._page.ask(command_about(command, card.view.row))
            except Refused as error:
                self._page.inform(str(error))

    def run_command(self, terms: Sequence[str]) -> None:
        """Run one of our commands in the place of the view, which comes back afterwards."""
        self._actions.release()
        try:
            with self.suspend():
                self._actions.run(terms)
        except SuspendNotSupported:
            self._page.inform("this terminal can't be handed to another program")
        except (Refused, ClientError) as error:
            self._page.inform(visible(str(error)))
        self.refresh(layout=True)

    def _about(self, action: Callable[[Card], str]) -> None:
        """Do something with the chosen load balancer, and show what came of it."""
        if card := self._chosen():
            try:
                self._page.inform(visible(action(card)))
            except (Refused, ClientError) as error:
                self._page.inform(self._actions.render(visible(str(error))))

    def _handle_exception(self, error: Exception) -> None:
        self.fault = self.fault or error
        super()._handle_exception(error)

    def _fatal_error(self) -> None:
        """Close the view without a traceback; the command reports the failure as it does every one."""
        self._close_messages_no_wait()
