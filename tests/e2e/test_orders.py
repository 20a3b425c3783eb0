"""`locallb fault`: clients meet what was ordered, everybody who looks is told, and nothing of it is left at the end."""

from __future__ import annotations

import math
import re
import signal
from collections import Counter
from typing import Any

import pytest

from tests.support.backends import backends
from tests.support.manifests import node, port, service
from tests.support.overrides import FAILS, answer, listeners, orders_of
from tests.support.stages import Stage, envoys, stage
from tests.support.watching import eventually, watching

pytestmark = pytest.mark.envoy

TOLD = "c/n/web: a fault is ordered by a command: of new TCP connections "
CLIENTS, DEVIATIONS = 2000, 6.5
"""So many standard deviations off is a false alarm in ten thousand million runs."""


def ordered(play: Stage) -> list[dict[str, Any]]:
    done = play.run("fault", "--json")
    assert done.code == 0, done.err
    listed: list[dict[str, Any]] = done.json
    return listed


@pytest.mark.parametrize("proxies", ["per-service", "shared"])
def test_a_share_of_clients_fails_from_the_order_to_its_end(proxies: str) -> None:
    """At once, both times; others and their processes don't notice; the state is as planned in between."""
    with stage() as play, backends() as make:
        number = make("b").port
        play.configure(proxies=proxies)
        play.write("s.yaml", node(), service("web", port(8080, number)), service("other", port(8080, number)))
        play.up()
        at, pids = play.addresses(), envoys(play.root)
        done = play.run("fault", "web", "--refuse", "8%", "--reset", "2%", "--for", "1h")
        assert (done.code, done.err) == (0, "")
        assert re.search(r"c/n/web +8% +- +2% +- +- +- +(1h 0m|59m \d+s) ", done.out)
        reported = Counter(answer(at["n/web"]) for _ in range(CLIENTS))
        failed = CLIENTS - reported["b: hello"]
        assert reported.keys() <= {"b: hello", *FAILS}
        assert abs(failed - CLIENTS * 0.1) <= DEVIATIONS * math.sqrt(CLIENTS * 0.1 * 0.9), reported
        assert {answer(at["n/other"]) for _ in range(50)} == {"b: hello"}
        assert play.run("up", "--yes", "--expect-no-changes").code == 0
        assert play.run("fault", "--undo").out.endswith("No fault is ordered.\n")
        assert {answer(at["n/web"]) for _ in range(100)} == {"b: hello"}
        assert envoys(play.root) == pids
        assert orders_of(play) == []


def test_status_and_preview_show_active_orders() -> None:
    """In tables, documents and previews, with the way to end it."""
    with stage() as play, backends() as make:
        play.write("s.yaml", node(), service("web", port(8080, make("b").port)))
        play.up()
        play.run("fault", "n/web", "--hang", "0.05%", "--for", "2h")
        assert TOLD + "0.05% are left hanging, until " in play.run("preview").err
        assert "serving   FaultOrdered" in play.run("status").out
        for reported in (play.run("status").err, play.run("status", "web").out, play.up().err):
            assert re.search(r"`locallb .*fault c/n/web --undo` ends it before", reported)
        (notice,) = play.status()["n/web"]["ordered"]
        assert (notice["reason"], notice["message"][: len(TOLD)]) == ("FaultOrdered", TOLD)
        (row,) = ordered(play)
        assert (row["name"], row["hang"], row["by"]) == ("web", 0.05, "command")
        assert 7000 < row["seconds"] <= 7200
        play.run("fault", "--undo", "web")
        assert "ordered" not in play.status()["n/web"]


def test_fault_expires_with_and_without_a_running_loop() -> None:
    """While nothing changes: the loop takes it back to the last byte; without a loop the proxy ends it."""
    with stage() as play, backends() as make:
        play.write("s.yaml", node(), service("web", port(8080, make("b").port)))
        with watching(play) as watch:
            eventually(lambda: play.addresses() and answer(play.addresses()["n/web"]) == "b: hello", watch)
            address = play.addresses()["n/web"]
            plain = listeners(play)
            assert play.run("fault", "web", "--refuse", "100%", "--for", "15s").code == 0
            eventually(lambda: TOLD in watch.reported(), watch)
            eventually(lambda: answer(address) == "b: hello" and listeners(play) == plain, watch)
            assert play.run("fault", "web", "--refuse", "100%", "--for", "15s").code == 0
            watch.stop(signal.SIGKILL)
        eventually(lambda: not ordered(play))
        eventually(lambda: answer(address) == "b: hello")
        assert listeners(play) != plain
        play.up()
        assert listeners(play) == plain


def test_an_order_waits_for_what_is_not_deployed_and_goes_with_the_stack() -> None:
    """It is in force from the first connection, and `destroy` leaves nothing of it."""
    with stage() as play, backends() as make:
        play.write("s.yaml", node(), service("web", port(8080, make("b").port)))
        done = play.run("fault", "web", "--refuse", "100%", "--for", "1h")
        assert (done.code, "not deployed yet: c/n/web" in done.err) == (0, True)
        play.up()
        assert answer(play.addresses()["n/web"]) in FAILS
        assert play.run("destroy", "--yes").code == 0
        assert orders_of(play) == []
        play.up()
        assert answer(play.addresses()["n/web"]) == "b: hello"


def test_fault_annotation_is_not_ended_by_a_command() -> None:
    """A command's order takes precedence, and gives way to the annotation when it ends."""
    with stage() as play, backends() as make:
        annotated = {"local-lb.dev/fault": "refuse=100%,until=2999-01-01T00:00:00Z"}
        play.write("s.yaml", node(), service("web", port(8080, make("b").port), annotations=annotated))
        play.up()
        address = play.addresses()["n/web"]
        assert [row["by"] for row in ordered(play)] == ["annotation"]
        play.run("fault", "web", "--hang", "0.01%")
        assert [row["by"] for row in ordered(play)] == ["command"]
        eventually(lambda: answer(address) == "b: hello")
        done = play.run("fault", "web", "--undo")
        assert (done.code, "annotation local-lb.dev/fault; remove that" in done.err) == (1, True)
        assert answer(address) in FAILS


def test_invalid_order_is_refused_without_effect() -> None:
    """One sentence each."""
    with stage() as play, backends() as make:
        number = make("b").port
        play.write("s.yaml", node(), service("web", port(8080, number)), service("udp", port(5353, number, "UDP")))
        before = play.files()
        for terms, code, reported in (
            (["udp", "--refuse", "1%"], 1, "c/n/udp has no TCP port"),
            (["nobody", "--refuse", "1%"], 1, "there is no load balancer 'nobody'"),
            (["--refuse", "1%"], 2, "name the SERVICE"),
            (["web", "--undo", "--refuse", "1%"], 2, "--undo takes no shares, and no --down"),
            (["web", "--refuse", "1"], 2, "'1' is not a percentage (for example 10% or 0.5%)"),
            (["web", "--refuse", "60%", "--hang", "41%"], 2, "at most 100%"),
            (["web", "--refuse", "1%", "--for", "8d"], 2, "'8d' is no time such as 90s"),
            (["web", "--refuse", "1%", "--for", "soon"], 2, "'soon' is no time such as 90s"),
        ):
            done = play.run("fault", *terms)
            assert (done.code, reported in " ".join(done.err.split())) == (code, True), done.err
            assert "Traceback" not in done.err
        assert play.files() == before


def test_a_file_of_orders_that_is_not_ours_is_reported_and_stops_nothing() -> None:
    """Whatever is in it."""
    with stage() as play, backends() as make:
        play.write("s.yaml", node(), service("web", port(8080, make("b").port)))
        play.run("fault", "web", "--refuse", "100%")
        (name,) = orders_of(play)
        for text in (
            "{",
            "[]",
            '{"version": 99}',
            '{"version": 1, "orders": 3}',
            '{"version": 1, "orders": {"c/n/web": 1}}',
        ):
            (play.root / name).write_text(text)
            assert "what commands ordered can't be read, and counts as over" in " ".join(play.run("status").err.split())
        play.up()
        assert answer(play.addresses()["n/web"]) == "b: hello"
        (play.root / name).write_text('{"version": 99}')
        refused = play.run("fault", "web", "--refuse", "100%")
        assert (refused.code, "nothing was ordered" in " ".join(refused.err.split())) == (1, True)
        assert (play.root / name).read_text() == '{"version": 99}'
        (play.root / name).unlink()
        assert play.run("fault", "web", "--refuse", "100%").code == 0
        assert answer(play.addresses()["n/web"]) in FAILS
