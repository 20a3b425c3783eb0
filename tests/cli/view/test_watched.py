"""The terminal view of a running watch: what it shows of a recorded story, and how it ends."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Iterator, Sequence
from contextlib import suppress
from ipaddress import ip_address
from itertools import islice

import pytest
from msgspec.structs import replace

from locallb.cli.commands.view import StackActions, WatchView
from locallb.cli.view.app import ViewApp
from locallb.cli.view.listing import Item, Query, Scene, listing
from locallb.cli.view.overview import pool_line, source_line, watched
from locallb.cli.watching.board import Board, EventBatch, RelayedEvent
from locallb.cli.watching.log import Narrator, plain
from locallb.cli.watching.reporting import Lines
from locallb.config.parsing import parse_settings
from locallb.model.identities import Family, Protocol
from locallb.model.snapshot import HostFacts, Socket
from locallb.planning.plan import make_plan
from locallb.report.changes import PoolRoom
from locallb.watch.delays import Delay
from locallb.watch.events import Delayed, Failed, LoopEvent, Planned
from tests.cli.view.screens import shown
from tests.support.goldens import Golden
from tests.support.watch_story import NOON, SETTINGS, key, planned, serving, snapshot_of, story, updated

pytestmark = pytest.mark.usefixtures("same_places")


def scenes() -> Iterator[Scene]:
    """Yield the scene after each chapter of the story."""
    board, narrator, scene = Board(), Narrator(), Scene("dev")
    for batch, observed in story():
        board.observed = observed
        board.take(batch)
        views, at = board.views(), batch.entries[-1].at
        records = (*narrator.report_to(batch, views), *narrator.services(at, views))
        scene = watched(scene, board, views, (*scene.records, *records), {})
        yield scene


def after(chapter: int) -> Scene:
    return next(islice(scenes(), chapter, None))


def of_events(latest: Planned, *events: LoopEvent, without: Sequence[str] = ()) -> Scene:
    """Return the scene after these events."""
    board = Board(observed=serving(latest.plan, without))
    board.take(EventBatch(tuple(RelayedEvent(NOON + n, event) for n, event in enumerate((latest, *events))), latest))
    return watched(Scene("dev"), board, board.views(), (), {})


def larger(*names: str, pool: str = "127.80.0.0/20", **settings: object) -> Planned:
    """Plan Services in a pool that has room for all, or in a smaller one."""
    sources, pools = [{"manifests": "m", "name": "demo"}], [{"name": "p", "addresses": [pool]}]
    parsed = parse_settings({"sources": sources, "pools": pools, **settings})
    snapshot = snapshot_of(*names)
    return replace(planned(snapshot), plan=make_plan(snapshot, parsed), settings=parsed)


def test_the_story_on_screens(golden: Golden) -> None:
    """While something updates, fails, is stale, and at the end; and what happened."""
    golden.check(
        "view/watched",
        {
            "updating-120x24.txt": shown(after(2), size=(120, 24)),
            "failed-120x24.txt": shown(after(3), size=(120, 24)),
            "failed-detail-80x24.txt": shown(after(3), "enter", size=(80, 24)),
            "stale-80x24.txt": shown(after(4), size=(80, 24)),
            "failing-60x16.txt": shown(after(5), size=(60, 16)),
            "end-40x10.txt": shown(after(9), size=(40, 10)),
            "events-120x24.txt": shown(after(9), "v", size=(120, 24)),
        },
    )


def test_nothing_of_the_story_drives_the_terminal() -> None:
    """It has escape sequences, line ends and marks that turn text, in sentences of failures and events."""
    for scene in scenes():
        for keys in ((), ("enter",), ("v",)):
            assert all(line.isprintable() for line in shown(scene, *keys, size=(100, 24)).splitlines())


@pytest.mark.parametrize("size", [(20, 5), (34, 9), (50, 14), (80, 15), (200, 60)])
def test_the_most_urgent_one_is_in_sight_at_any_size(size: tuple[int, int]) -> None:
    """Also with warnings above it."""
    for chapter in (3, 4, 5):
        assert "demo/shop/f" in shown(after(chapter), size=size), chapter


def test_troubled_and_recently_changed_ones_come_first() -> None:
    """Of a thousand."""
    names = [f"s{number:04d}" for number in range(1000)]
    scene = of_events(larger(*names), updated("s0700"), without=["s0500"])
    lines = [line for line in listing(scene.cards, {}, Query()) if isinstance(line, Item)]
    assert [line.card.name for line in lines[:3]] == ["demo/shop/s0500", "demo/shop/s0700", "demo/shop/s0000"]


def test_one_cause_of_many_is_one_line_beside_those_that_serve() -> None:
    text = shown(of_events(larger(*(f"s{n:02d}" for n in range(44)), pool="127.80.0.0/30")), size=(80, 24))
    assert sum(line.startswith("+ ") for line in text.splitlines()) == 1
    assert "+ 40 Services: PoolExhausted, add addresses to local-lb:pools" in text
    assert text.count(" serving ") == 4


def test_a_mapped_port_is_shown_as_clients_find_it() -> None:
    """With both numbers; the URL has the one that is served."""
    settings = parse_settings({"sources": [{"manifests": "m", "name": "demo"}], "portMapping": "loopback"})
    claimed = Socket(ip_address("127.0.0.1"), 8080, Protocol.TCP)
    snapshot = replace(snapshot_of("web"), host=HostFacts(watches=10_000, sockets=(claimed,)))
    scene = of_events(replace(planned(snapshot), plan=make_plan(snapshot, settings)))
    (card,) = scene.cards
    (port,) = card.view.row.ports
    assert port.port.mapped not in {0, port.port.port}
    assert card.ports == f"8080/TCP={port.port.mapped}"
    assert StackActions(("locallb",)).urls(scene, card) == [f"http://127.0.0.1:{port.port.mapped}/"]


def test_sources_and_pools_are_in_the_head() -> None:
    """With the time since when one is stale, and how full each pool is."""
    assert "sources  demo ok" in shown(after(3))
    assert "pools    small IPv4 4 of 4 used, 0 free  proxies 4, 3 answer" in shown(after(3))
    assert "sources  demo stale since 12:00:04" in shown(after(4))
    assert "sources" not in shown(after(3), size=(80, 14))
    many = replace(SETTINGS, sources=SETTINGS.sources * 8)
    assert source_line(many, {})[-1] == ("and 2 more", "")
    assert not any("ok" in text for text, _ in source_line(SETTINGS, None))
    room = PoolRoom("p", Family.IPV6, 8, 4, 0)
    assert ("4 of 8 used, 0 free, 4 unavailable  ", "yellow") in pool_line([room], 2, 2)
    assert pool_line([], 2, 1)[-1] == ("proxies 2, 1 answer", "yellow")
    assert pool_line([], 2, None)[-1] == ("proxies 2", "")


def test_what_is_in_the_way_of_the_loop_is_a_warning() -> None:
    """A failure of the whole, parties that don't answer, and failed updates of what has no line."""
    delay = Delay("docker", "Docker", NOON, (key("web"),))
    start = planned(snapshot_of("web"), "gone")
    scene = of_events(start, Delayed((delay,)), updated("gone", "web", failed={"gone": "no", "web": "no"}))
    waiting, failed = scene.warnings
    assert waiting == "Docker: no answer since 12:00:00; 1 load balancer waits for it (demo/shop/web)"
    assert failed == "`watch` has failed to update demo/shop/gone since 12:00:02: no"
    assert of_events(start, Failed("it is locked")).warnings == ("failing: it is locked",)


def test_the_detail_says_when_it_was_updated_and_since_when_that_fails() -> None:
    good = of_events(larger("web"), updated("web"))
    assert "updated    12:00:01, 40 ms after the change" in shown(good, "enter")
    bad = replace(updated("web", failed={"web": "no"}), retries={key("web"): NOON + 9})
    text = shown(of_events(larger("web"), bad), "enter")
    assert "failing    since 12:00:01, next attempt at 12:00:09" in text
    assert "UpdateFailed" in text


class _Lines(Lines):
    """Lines into memory."""

    def __init__(self) -> None:
        self.stream = io.BytesIO()
        super().__init__(self.stream, plain)  # type: ignore[arg-type]  # it is written to like a raw stream


def view_of(lines: Lines | None = None) -> WatchView:
    return WatchView("dev", StackActions(("locallb",)), lambda: lines or _Lines())


def told(view: WatchView) -> None:
    """Report all of the story to it."""
    board, narrator = Board(), Narrator()
    for batch, observed in story():
        board.observed = observed
        board.take(batch)
        views = board.views()
        view.show([*narrator.report_to(batch, views)], board, views)


def test_the_last_line_says_what_goes_on_and_which_commands_are_next() -> None:
    view = view_of()
    assert view.farewell.startswith("Stopped watching. `locallb status`")
    told(view)
    assert view.farewell.startswith("Stopped watching; 4 Services go on serving. `locallb status`")
    assert "`locallb destroy`" in view.farewell


def test_a_mistake_in_the_view_leaves_the_watch_its_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """What happens afterwards is printed."""

    def broken(_app: ViewApp) -> None:
        raise ZeroDivisionError("on purpose")

    monkeypatch.setattr(ViewApp, "run", broken)
    lines = _Lines()
    view = view_of(lines)
    assert isinstance(view.run(lambda _app: None), ZeroDivisionError)
    told(view)
    assert b"converged: 3 Services" in lines.stream.getvalue() or b"converged" in lines.stream.getvalue()


def test_news_are_shown_while_it_runs_and_stop_closes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """From another thread; `begun` is called within the event loop."""
    seen: list[str] = []

    def run(app: ViewApp) -> None:
        async def headless() -> None:
            async with app.run_test(size=(120, 40)) as pilot:
                told(view)
                await pilot.pause()
                await pilot.pause()
                seen.append(app.scene.state)
                view.stop()
                await pilot.pause()
                seen.append(str(app._exit))

        with suppress(asyncio.CancelledError):
            asyncio.run(headless())

    monkeypatch.setattr(ViewApp, "run", run)
    monkeypatch.setattr("locallb.cli.commands.view.traffic", lambda _plan, _timeout: ())
    view = view_of()
    assert view.run(lambda app: seen.append(type(app).__name__)) is None
    assert seen[0] == "ViewApp"
    assert seen[1].startswith("in sync")
    assert seen[2] == "True"
