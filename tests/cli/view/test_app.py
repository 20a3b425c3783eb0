"""The terminal view by its keys: what it shows at several sizes, what it finds, groups, opens, copies and runs."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from rich.style import Style
from textual.events import Key

from locallb.cli.commands import status
from locallb.cli.commands.view import StackActions
from locallb.cli.failures import Refused
from locallb.cli.view import app as view_app
from locallb.cli.view.app import ListPage, ViewApp
from locallb.cli.view.listing import KEYS, Scene, line_parts
from tests.cli.view.scenes import calm, hostile, scene_of, trouble
from tests.cli.view.screens import press, shown, text_of
from tests.support.goldens import Golden

pytestmark = pytest.mark.usefixtures("same_places")
PAGE = Path(__file__).resolve().parents[3] / "docs" / "view.md"
SIZES = ((80, 24), (120, 40), (200, 60))
CASES: dict[str, tuple[Callable[[], Scene], tuple[str, ...]]] = {
    "calm": (calm, ()),
    "trouble": (trouble, ("down",)),
    "filter": (trouble, ("slash", *"pending")),
    "detail": (calm, ("slash", *"gateways", "enter", "enter")),
}
"""What is shown, and which keys were pressed."""


def screens() -> dict[str, str]:
    return {
        f"{name}-{width}x{height}.txt": shown(make(), *keys, size=(width, height))
        for name, (make, keys) in CASES.items()
        for width, height in SIZES
    }


def test_screens_at_three_sizes(golden: Golden) -> None:
    """Calm, in trouble, filtered, and all about a Gateway."""
    golden.check("view/screens", screens())


@pytest.mark.checkout
def test_the_page_shows_what_the_view_shows(golden: Golden) -> None:
    """Each block below a comment that names a golden file has its text."""
    block = re.compile(r"(<!-- (\S+\.txt) -->\n```text\n)(.*?)(^```$)", re.DOTALL | re.MULTILINE)
    text = PAGE.read_text(encoding="utf-8")
    names = [match[2] for match in block.finditer(text)]
    assert {name.partition("-")[0] for name in names} == set(CASES)
    made = block.sub(lambda match: f"{match[1]}{(golden.path('view/screens') / match[2]).read_text()}{match[4]}", text)
    if golden.update:
        PAGE.write_text(made, encoding="utf-8")
    assert made == text or golden.update


def test_those_that_serve_are_in_sight_beside_forty_that_get_nothing() -> None:
    """At 80 by 24, with the remedy for the forty."""
    text = shown(trouble(), size=(80, 24))
    assert text.count(" serving ") == 11
    assert "40 Services: PoolExhausted, add addresses to local-lb:pools" in text


def test_a_group_is_opened_and_closed_by_enter() -> None:
    assert shown(trouble(), "enter").count("rejected ") > 20
    assert shown(trouble(), "enter", "enter") == shown(trouble())


def test_groups_and_orders_are_chosen_by_one_key_each() -> None:
    """After the last one comes the first."""
    assert "by cluster, urgency first" in shown(calm(), "g")
    assert "by reason, name first" in shown(calm(), "s")
    assert shown(calm(), *"ggggssss") == shown(calm())


def test_a_filter_counts_what_it_finds_and_escape_shows_all() -> None:
    text = shown(calm(), "slash", *"gateways")
    assert "; 1 with 'gateways'" in text
    assert "postgres" not in text
    assert shown(calm(), "slash", *"gateways", "enter", "escape") == shown(calm())
    assert "Nothing here fits the filter" in shown(calm(), "slash", *"xyz")


@pytest.mark.parametrize(("typed", "found"), [("/qsg?", "0 with 'qsg?'"), ("/web\r", "2 with 'web'")])
def test_a_filter_takes_what_is_typed_at_once(typed: str, found: str) -> None:
    """Keys that come before the prompt has the focus are in it, in their order."""

    async def run() -> str:
        app = ViewApp(calm(), StackActions(("locallb",)))
        async with app.run_test(size=(120, 40)) as pilot:
            await pilot.pause()
            for character in typed:
                name = {"/": "slash", "?": "question_mark", "\r": "enter"}.get(character, character)
                app.post_message(Key(name, character))
            for _ in range(100):
                await pilot.pause()
                if found in text_of(app):
                    break
            return text_of(app)

    assert found in asyncio.run(run())


def test_letters_in_a_filter_are_no_keys() -> None:
    """`q` doesn't quit, `s` doesn't sort."""
    assert "0 with 'qsg?'" in shown(calm(), "slash", *"qsg", "question_mark")


def test_what_is_chosen_stays_chosen_when_the_list_changes() -> None:
    """Also where it moves; of one that is gone the line in its place is chosen."""

    def chosen(app: ViewApp) -> str:
        page = app.screen
        assert isinstance(page, ListPage)
        assert page.card
        return page.card.view.row.key.name

    async def run() -> list[str]:
        scene, found = trouble(), []
        app = ViewApp(scene, StackActions(("locallb",)))
        async with app.run_test(size=(80, 24)) as pilot:
            await press(pilot, ["down"] * 5)
            found.append(chosen(app))
            for cards in (scene.cards[10:], scene.cards[:3]):
                some = [card for card in scene.cards if card.view.row.key.name == found[0]]
                app.offer(replace(scene, cards=(*cards, *(some if cards != scene.cards[:3] else ()))))
                await pilot.pause()
                found.append(chosen(app))
        return found

    first, second, third = asyncio.run(run())
    assert first == second
    assert third != first


def test_a_list_that_is_shorter_is_shown_from_its_beginning() -> None:
    """Wherever one was in the longer one; and details are scrolled to their end and back."""
    assert shown(trouble(), "enter", "end", "slash", *"shop-1", size=(80, 24)).count("shop-1") > 10
    low = shown(calm(), "slash", *"gateways", "enter", "enter", "end", size=(40, 6))
    assert "curl" in low
    assert "demo/gateways" not in low
    assert "demo/gateways" in shown(calm(), "slash", *"gateways", "enter", "enter", "end", "home", size=(40, 6))


def test_lines_that_were_scrolled_to_stay_in_sight_when_the_scene_changes() -> None:
    """The mouse scrolls without choosing another line."""

    async def run() -> tuple[str, str]:
        scene = trouble()
        app = ViewApp(scene, StackActions(("locallb",)))
        async with app.run_test(size=(80, 24)) as pilot:
            await press(pilot, ["enter"])
            lines = app.screen.query_one(view_app.Lines)
            lines.scroll_to(y=20, animate=False, immediate=True)
            await pilot.pause()
            before = text_of(app)
            app.offer(replace(scene))
            await pilot.pause()
            return before, text_of(app)

    before, after = asyncio.run(run())
    assert before == after
    assert "shop-40" in after


def test_detail_shows_routes_backends_events_and_commands() -> None:
    text = shown(calm(), "slash", *"gateways", "enter", "enter")
    assert "www.shop.test" in text
    assert "curl --globoff" in text
    web = shown(calm(), "slash", *"web", "enter", "end", "enter")
    assert "127.0.0.1:30080" in web


def test_escape_leads_back_from_details_and_from_the_keys() -> None:
    assert shown(calm(), "enter", "escape") == shown(calm()) == shown(calm(), "question_mark", "escape")
    assert all(name in shown(calm(), "question_mark") for name, _ in KEYS)


def test_nothing_of_a_cluster_is_markup_or_drives_the_terminal() -> None:
    """Neither in the list nor in details, nor as a message; hostile text is shown as it is."""
    for keys in ((), ("enter", "down"), ("enter", "down", "enter"), ("y",), ("down", "y"), ("enter", "down", "f")):
        text = shown(hostile(), *keys, size=(200, 60))
        assert all(line.isprintable() for line in text.splitlines()), keys
    assert "[bold red]" in shown(hostile(), "enter", "down", "enter", size=(200, 60))


@pytest.mark.parametrize("plain", [True, False])
def test_no_colour_is_used_where_none_is_wanted(monkeypatch: pytest.MonkeyPatch, *, plain: bool) -> None:
    """What is chosen is shown in reverse all the same."""
    monkeypatch.setenv("NO_COLOR", "1") if plain else monkeypatch.delenv("NO_COLOR", raising=False)
    styles: list[Style] = []

    def collect(app: ViewApp) -> None:
        strips = app.screen._compositor.render_strips()
        styles.extend(segment.style for strip in strips for segment in strip if segment.style)

    shown(trouble(), then=collect)
    colours = {
        colour for style in styles for colour in (style.color, style.bgcolor) if colour and not colour.is_default
    }
    assert bool(colours) is not plain
    assert any(style.reverse for style in styles)


def test_an_empty_stack_says_what_to_expect() -> None:
    assert "Nothing to serve." in shown(scene_of([], empty=("Nothing to serve.",)))
    assert "reading the sources" in shown(Scene("dev"))
    assert "load balancer" not in shown(Scene("dev")).partition("reading")[0]


@pytest.mark.parametrize("key", [*"oycltefd"])
def test_a_key_about_a_load_balancer_shows_how_to_choose_one(monkeypatch: pytest.MonkeyPatch, key: str) -> None:
    """On the head of a group, and where the list is empty."""
    terminal = Terminal(monkeypatch)
    for text in (shown(trouble(), "g", key), shown(scene_of([]), key)):
        assert "choose a load balancer first" in text
    assert not terminal.ran


def test_a_tiny_terminal_has_a_line_of_the_list() -> None:
    """At 20 by 5 the chosen one is in sight below the columns; the reason has no room, and no scroll bar takes any."""
    text = shown(calm(), "down", size=(20, 5)).splitlines()
    assert text[2].startswith("NAME")
    assert text[3].startswith("demo/shop")
    assert not set("▁▂▃▄▅▆▇") & set("".join(text))


def test_a_text_that_was_copied_is_shown_whole() -> None:
    """A curl command has several lines, and the chosen line stays in sight above it."""
    text = shown(trouble(), "enter", "end", "c", size=(60, 12))
    assert "".join(text.partition("copied,")[2].split()).endswith("http://127.77.0.4:8080/")
    assert "demo/shop/shop-11" in text
    after = shown(trouble(), "enter", "end", "c", size=(60, 12), then=lambda app: app._page.inform(""))
    assert after.splitlines()[-1].startswith("/ filter")


def test_a_long_warning_is_shown_whole() -> None:
    """Its end names the remedy; several share the room, and the list stays in sight."""
    long = f"can't be read now: {'x' * 200}; run `locallb state restore`"
    assert "state restore" in shown(replace(calm(), warnings=(long,)), size=(80, 24))
    assert shown(replace(calm(), warnings=(long,) * 5), size=(80, 24)).count("demo/shop/") == 3


def test_ctrl_z_suspends_the_view(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(ViewApp, "action_suspend_process", lambda _app: asked.append("suspend"))
    shown(calm(), "ctrl+z")
    assert asked == ["suspend"]


def test_a_url_and_a_curl_command_are_copied() -> None:
    """By the terminal, and shown for one that doesn't do it."""
    copied: list[str] = []
    text = shown(calm(), "slash", *"web", "enter", "end", "y", "c", then=lambda app: copied.append(app.clipboard))
    assert copied[0].startswith("curl --globoff --noproxy '*' http://127.77.0.")
    assert f"copied, if your terminal allows it: {copied[0]}" in text
    shown(calm(), "slash", *"web", "enter", "end", "y", then=lambda app: copied.append(app.clipboard))
    assert re.fullmatch(r"http://127\.77\.0\.\d:8080/", copied[1])


def test_what_cannot_be_done_is_said_with_the_reason() -> None:
    """In the last line, of a Service without an address."""
    text = shown(trouble(), "enter", "down", "y", size=(200, 60))
    assert "it can't be opened yet: demo/shop/shop-1" in text
    assert "nothing says that port 5432/TCP" in shown(calm(), "slash", *"postgres", "enter", "c", size=(200, 60))


def test_o_opens_the_browser(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the function of `locallb open`, which also says why it doesn't."""
    opened: list[str] = []
    monkeypatch.setattr(status, "_obstacle", lambda: "")
    monkeypatch.setattr(status, "_show", lambda url: not opened.append(url))  # type: ignore[func-returns-value]  # None
    text = shown(calm(), "slash", *"web", "enter", "end", "o")
    assert f"opened {opened[0]}" in text
    monkeypatch.setattr(status, "_obstacle", lambda: "there is no display here")
    assert "no browser was started: there is no display here" in shown(calm(), "o")


class Terminal:
    """A terminal that is handed over, and what was run there."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ran: list[Sequence[str]] = []
        monkeypatch.setattr(ViewApp, "suspend", lambda _app: nullcontext())
        monkeypatch.setattr(StackActions, "run", lambda _actions, terms: self.ran.append(terms))


@pytest.mark.parametrize(
    ("keys", "ran"),
    [
        (["l"], ("logs", "demo/shop/api")),
        (["t"], ("top", "demo/shop/api")),
        (["enter", "l"], ("logs", "demo/shop/api")),
        (["d", "enter"], ("drain", "demo/shop/api")),
        (["d", *" --undo", "enter"], ("drain", "demo/shop/api", "--undo")),
        (["f", "enter"], ("fault", "demo/shop/api", "--refuse", "10%", "--for", "5m")),
        (["enter", "d", "enter"], ("drain", "demo/shop/api")),
        (["d", "escape"], None),
        (["d", *"'", "enter"], None),
    ],
    ids=str,
)
def test_commands_are_run_in_the_place_of_the_view(
    monkeypatch: pytest.MonkeyPatch, keys: list[str], ran: tuple[str, ...] | None
) -> None:
    """What changes something can be edited or left before; the view comes back."""
    terminal = Terminal(monkeypatch)
    text = shown(calm(), "slash", *"api", "enter", "s", *keys)
    assert [tuple(terms) for terms in terminal.ran] == ([ran] if ran else [])
    assert "demo/shop/api" in text


@pytest.mark.parametrize(
    ("keys", "ran"),
    [
        (["e"], ("help", "PoolExhausted")),
        (["down", "e"], ("help", "NotDeployed")),
        (["down", "enter", "e"], ("help", "NotDeployed")),
        (["end", "e"], None),
    ],
    ids=str,
)
def test_a_reason_is_explained(monkeypatch: pytest.MonkeyPatch, keys: list[str], ran: tuple[str, ...] | None) -> None:
    """Of a group and of a load balancer; where nothing is wrong, that is said."""
    terminal = Terminal(monkeypatch)
    text = shown(trouble(), *keys)
    assert [tuple(terms) for terms in terminal.ran] == ([ran] if ran else [])
    assert ("nothing is wrong with it" in text) == (ran is None)


def test_a_command_that_cannot_be_started_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_actions: StackActions, _terms: Sequence[str]) -> None:
        raise Refused("locallb can't be run (Permission denied)")

    Terminal(monkeypatch)
    monkeypatch.setattr(StackActions, "run", refuse)
    assert "Permission denied" in shown(calm(), "l")
    monkeypatch.undo()
    assert "can't be handed to another program" in shown(calm(), "l")


def test_clicks_choose_and_open() -> None:
    async def run() -> str:
        app = ViewApp(calm(), StackActions(("locallb",)))
        async with app.run_test(size=(120, 40)) as pilot:
            await pilot.pause()
            await pilot.click(view_app.Lines, offset=(3, 2), times=2)
            await pilot.pause()
            return text_of(app)

    assert "Esc back" in asyncio.run(run())


def test_q_closes_the_view_and_so_does_ctrl_c() -> None:
    async def run(key: str) -> bool:
        app = ViewApp(calm(), StackActions(("locallb",)))
        async with app.run_test() as pilot:
            await pilot.press(key)
            await pilot.pause()
            return app._exit

    assert all(asyncio.run(run(key)) for key in ("q", "ctrl+c", "ctrl+q"))


def test_a_mistake_of_ours_is_left_to_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which reports it in one sentence: no traceback is printed."""

    def broken(*_args: Any) -> None:  # noqa: ANN401 - whatever it is called with
        raise ZeroDivisionError("on purpose")

    app = ViewApp(calm(), StackActions(("locallb",)))

    async def run() -> None:
        async with app.run_test() as pilot:
            monkeypatch.setattr(view_app, "listing", broken)
            await pilot.press("s")

    with suppress(ZeroDivisionError):
        asyncio.run(run())
    assert isinstance(app.fault, ZeroDivisionError)
    assert not app._exit_renderables


def test_only_lines_in_sight_are_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of ten thousand; Page Down and End lead to the others."""
    drawn: set[int] = set()
    scene = trouble()
    many = replace(scene, cards=scene.cards * 200)

    def counting(line: Any, *args: Any) -> Any:  # noqa: ANN401 - as the real one
        drawn.add(id(line))
        return line_parts(line, *args)

    monkeypatch.setattr(view_app, "line_parts", counting)
    text = shown(many, "g", "s", "end", size=(80, 24))
    assert "shop-51" in text
    assert len(drawn) < 100


def test_a_view_that_has_ended_can_be_stopped_again() -> None:
    """By a signal that comes then, or from another thread."""
    app = ViewApp(calm(), StackActions(("locallb",)))

    async def run() -> None:
        async with app.run_test():
            app.stop()

    asyncio.run(run())
    app.stop()
    app.offer(trouble())
