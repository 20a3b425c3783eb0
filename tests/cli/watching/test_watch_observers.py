"""What observes the loop beside the views: hand-over without waiting, health of proxies, metrics; all of it bounded."""

from __future__ import annotations

import errno
import gc
import io
import itertools
import threading
import time
import tracemalloc

import pytest
from typing_extensions import Buffer

from locallb.cli.watching.board import UPDATING, Board, Relay
from locallb.cli.watching.health import HealthWatch
from locallb.cli.watching.http_server import HttpRequest
from locallb.cli.watching.log import Narrator, plain
from locallb.cli.watching.metrics import Metrics
from locallb.cli.watching.reporting import EventReporter, Lines
from locallb.cli.watching.supervision import BUSY_LIMIT, IDLE_LIMIT, pages, stuck
from locallb.model.serving import Proxy
from locallb.planning.service_rows import Observation, State
from locallb.watch.events import Cause, Converged, Failed, LoopEvent, Mark, Planned, Pulse, Stopped
from tests.support.metrics import sample
from tests.support.waiting import TIMEOUT, becomes
from tests.support.watch_story import SHARED, planned, serving, snapshot_of, story, updated


def test_the_relay_gives_everything_in_order_and_only_the_latest_plan() -> None:
    """Plans are large: entries have none."""
    relay, first, last = Relay(), planned(snapshot_of("web")), planned(snapshot_of("web", "api"))
    for event in (first, updated("web"), last, Converged()):
        relay.listen(event)
    batch = relay.take(0)
    assert [type(entry.event).__name__ for entry in batch.entries] == ["Planned", "Updated", "Planned", "Converged"]
    assert batch.latest is last
    assert not any(getattr(entry.event, "snapshot", None) for entry in batch.entries)
    assert relay.take(0).entries == ()


def test_full_relay_drops_the_oldest_events_and_counts_them() -> None:
    """The loop is never blocked, and memory stays bounded."""
    relay = Relay(maximum=3)
    for number in range(10):
        relay.listen(Converged(number))
    batch = relay.take(0)
    assert batch.lost == 7
    assert [entry.event for entry in batch.entries] == [Converged(7), Converged(8), Converged(9)]
    assert next(Narrator().report_to(batch, [])).event == "lost"


class RequestedAddress:
    """Stands for proxies: answers what it is told to, and remembers who was asked."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.answers: dict[str, Observation | None] = {}

    def __call__(self, proxy: Proxy) -> Observation | None:
        self.names.append(proxy.name)
        return self.answers.get(proxy.name)


def test_health_asks_those_that_were_updated_and_tells_what_is_new() -> None:
    """Only the updated one is asked at once; an answer that is the same again is no news."""
    requested, news = RequestedAddress(), threading.Event()
    event = planned(snapshot_of("web", "api"))
    requested.answers = serving(event.plan)
    health = HealthWatch(requested, news.set)
    health._turn_at = time.monotonic() + 3600  # nobody's turn in this test
    health.start()
    health.listen(event)
    health.listen(updated("web"))
    assert news.wait(TIMEOUT)
    assert requested.names == ["demo/shop/web"]
    assert health.observed() == {"demo/shop/web": requested.answers["demo/shop/web"]}
    news.clear()
    health.listen(updated("web"))
    becomes(lambda: len(requested.names) == 2)
    health.listen(updated("api"))
    assert news.wait(TIMEOUT)
    assert requested.names == ["demo/shop/web", "demo/shop/web", "demo/shop/api"]
    health.listen(planned(snapshot_of("api"), marks=[Mark(Cause.PROXY, "demo/shop/api")]))
    becomes(lambda: len(requested.names) == 4)
    assert health.observed().keys() == {"demo/shop/api"}
    health.stop()


def observation_of(event: Planned) -> Observation:
    """Return what the only proxy of a plan answers that serves all of it."""
    ports = (port for placement in event.plan.placements for port in placement.ports)
    return Observation(frozenset(listener.name for port in ports for listener in port.listeners))


def test_services_of_a_shared_proxy_stay_served_while_another_one_of_it_is_updated() -> None:
    """The last answer is from before the update: of what is new nothing is known until the proxy is asked again."""
    board, relay, requested = Board(), Relay(), RequestedAddress()
    health = HealthWatch(requested, lambda: None)

    def happens(*events: LoopEvent) -> dict[str, tuple[State, str]]:
        for event in events:
            health.listen(event)
            relay.listen(event)
        board.observed = health.observed()
        board.take(relay.take(0))
        return {view.row.key.name: (view.row.state, view.row.reason) for view in board.views()}

    first, second = planned(snapshot_of("web"), settings=SHARED), planned(snapshot_of("web", "api"), settings=SHARED)
    (proxy,) = first.plan.proxies
    assert happens(first, updated("web")) == {"web": (State.PENDING, UPDATING)}
    requested.answers = {proxy.proxy.name: observation_of(first)}
    health._inspect(proxy.proxy)
    assert happens() == {"web": (State.SERVING, "")}
    assert happens(second, updated("api")) == {"web": (State.SERVING, ""), "api": (State.PENDING, UPDATING)}
    requested.answers = {proxy.proxy.name: observation_of(second)}
    health._inspect(proxy.proxy)
    assert happens() == {"web": (State.SERVING, ""), "api": (State.SERVING, "")}


def test_every_proxy_has_its_turn() -> None:
    """Without anything that happens, all are asked again and again."""
    requested = RequestedAddress()
    health = HealthWatch(requested, lambda: None)
    event = planned(snapshot_of("web", "api", "db"))
    requested.answers = serving(event.plan)
    health.listen(event)
    health._absorb()
    names = []
    for now in itertools.count(1000, 100):
        proxy = health._next(float(now))
        assert proxy
        names.append(proxy.name)
        if len(names) == 6:
            break
    assert names == ["demo/shop/api", "demo/shop/db", "demo/shop/web"] * 2


def metrics_of_the_story(chapters: int) -> Metrics:
    observed: dict[str, Observation | None] = {}
    metrics = Metrics(lambda: observed)
    for batch, now in story()[:chapters]:
        observed = dict(now)
        for entry in batch.entries:
            event = entry.event
            metrics.listen(event)
    return metrics


def test_metrics_show_updates_failures_and_current_state() -> None:
    """In the middle of the story: a failure waits, a source is stale, the pool is full."""
    metrics = metrics_of_the_story(5)
    assert sample(metrics, "locallb_marks_total", cause="source") == 2
    assert sample(metrics, "locallb_updates_total", outcome="failed") == 1
    assert sample(metrics, "locallb_load_balancer_failures_total") == 1
    assert sample(metrics, "locallb_applied_latency_seconds_count") == 2
    assert sample(metrics, "locallb_resource_operations_total", operation="create") == 28
    assert sample(metrics, "locallb_waiting_retries") == 1
    assert sample(metrics, "locallb_source_stale", source="demo") == 1
    assert sample(metrics, "locallb_pool_addresses_used", pool="small", family="IPv4") == 4
    assert sample(metrics, "locallb_pool_addresses_free", pool="small", family="IPv4") == 0
    assert sample(metrics, "locallb_service_problems", reason="PoolExhausted") == 1
    assert sample(metrics, "locallb_ports", via="nodePorts") == 4
    assert sample(metrics, "locallb_ports", via="pods") == 0
    assert sample(metrics, "locallb_proxies") == 4
    assert (sample(metrics, "process_resident_memory_bytes") or 0) > 0


def test_metrics_have_no_names_of_services() -> None:
    """However many Services there are, the number of series stays the same."""
    few, many = Metrics(dict), Metrics(dict)
    few.listen(planned(snapshot_of("web")))
    many.listen(planned(snapshot_of(*(f"other{number}" for number in range(4)))))
    assert b"other" not in many.text("")[0]
    assert len(few.text("")[0].splitlines()) == len(many.text("")[0].splitlines())


ASKED = HttpRequest("GET", "/")


@pytest.mark.parametrize(
    ("events", "ready"),
    [
        ((), False),
        ((planned(snapshot_of("web")),), False),
        ((planned(snapshot_of("web")), Converged()), True),
        ((Failed("no reading", "source"),), False),
        ((planned(snapshot_of("web")), Converged(), Failed("no reading", "source")), False),
        ((planned(snapshot_of("web")), Converged(), Failed("no reading", "source"), planned(snapshot_of())), True),
    ],
)
def test_ready_is_after_the_first_convergence_while_everything_can_be_read(
    events: tuple[LoopEvent, ...], *, ready: bool
) -> None:
    """The page says why not; liveness is another question."""
    metrics = Metrics(dict)
    for event in events:
        metrics.listen(event)
    made = pages(metrics, lambda: Pulse(time.monotonic()))
    assert (made["/readyz"](ASKED).status, made["/healthz"](ASKED).status) == (200 if ready else 503, 200)
    assert sample(metrics, "locallb_ready") == float(ready)


def test_a_loop_that_shows_no_sign_of_life_is_stuck() -> None:
    """An update may take longer than a moment of idleness."""
    assert not stuck(Pulse(100.0), 100.0 + IDLE_LIMIT)
    assert stuck(Pulse(100.0), 101.0 + IDLE_LIMIT)
    assert not stuck(Pulse(100.0, busy=True), 100.0 + BUSY_LIMIT)
    assert stuck(Pulse(100.0, busy=True), 101.0 + BUSY_LIMIT)
    late = pages(Metrics(dict), lambda: Pulse(time.monotonic() - 1000))
    assert (late["/healthz"](ASKED).status, late["/readyz"](ASKED).status) == (503, 503)


class Stream(io.RawIOBase):
    """A stream that at times takes less than it is given, or fails."""

    def __init__(self, *answers: int) -> None:
        super().__init__()
        self.text = ""
        self.answers = list(answers)
        """For each write how many bytes are taken, or a negative error number; afterwards all are."""

    def write(self, data: Buffer, /) -> int:
        text = bytes(data).decode()
        answer = self.answers.pop(0) if self.answers else len(text)
        if answer < 0:
            raise OSError(-answer, "no")
        self.text += text[:answer]
        return answer


def test_a_full_disk_costs_lines_which_are_counted_and_never_the_loop() -> None:
    """What can't be written is left out; the next line tells how much that was, and isn't glued to half a line."""
    stream = Stream(10, -errno.ENOSPC, -errno.ENOSPC, -errno.ENOSPC)
    lines, narrator, board = Lines(stream, plain), Narrator(), Board()
    for batch, _ in story()[:4]:
        board.take(batch)
        lines.show(list(narrator.report_to(batch, board.views())), board, ())
    reported = stream.text.splitlines()
    assert len(reported[0]) == 10
    assert reported[1].endswith("warning: 2 lines could not be written")
    assert reported[2].endswith("converged: 2 Services")


def test_a_reader_that_went_away_is_reported() -> None:
    """A closed pipe: nobody will ever read what is written there."""
    relay, removed = Relay(), threading.Event()
    teller = EventReporter(relay, Lines(Stream(-errno.EPIPE), plain), dict, lambda _error: removed.set())
    relay.listen(planned(snapshot_of("web"), "web"))
    teller.start()
    assert removed.wait(TIMEOUT)


def test_the_teller_tells_all_and_ends_with_the_loop() -> None:
    """The last words are told."""
    relay, stream = Relay(), Stream()
    teller = EventReporter(relay, Lines(stream, plain), dict, lambda error: pytest.fail(str(error)))
    teller.start()
    for event in (planned(snapshot_of("web"), "web"), updated("web"), Converged(), Stopped()):
        relay.listen(event)
    assert teller.join(TIMEOUT)
    terms = [line.partition(" ")[2].split()[0] for line in stream.text.splitlines()]
    assert terms == ["planned", "updated", "converged:", "stopped;"]


@pytest.mark.slow
def test_weeks_of_events_take_no_memory() -> None:
    """Ten thousand, with Services that come and go under new names each time: what is kept doesn't grow."""
    relay, metrics, health = Relay(), Metrics(dict), HealthWatch(lambda _proxy: None, lambda: None)
    board, narrator, lines = Board(), Narrator(), Lines(Stream(), plain)
    snapshots = [snapshot_of(f"a{number}", f"b{number}", f"c{number}") for number in range(100)]
    plans = [planned(snapshot, marks=[Mark(Cause.RETRY)]) for snapshot in snapshots]

    def live(rounds: int) -> None:
        for number in range(rounds):
            name = f"a{number % 100}"
            for event in (
                plans[number % 100],
                updated(name, failed={name: "no"} if number % 3 == 0 else {}),
                Failed(f"number {number}", "host"),
                Converged(number % 2),
            ):
                for listen in (relay.listen, metrics.listen, health.listen):
                    listen(event)
            if number % 5 == 0:  # a teller that is slow at times
                batch = relay.take(0)
                board.take(batch)
                views = board.views()
                lines.show([*narrator.report_to(batch, views), *narrator.services(0.0, views)], board, views)
                lines._stream = Stream()

    tracemalloc.start()
    try:
        live(500)
        gc.collect()  # also empties the interpreter's lists of free tuples
        before, _ = tracemalloc.get_traced_memory()
        live(2500)  # of four events each
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 20_000, f"{before} bytes became {after}"
