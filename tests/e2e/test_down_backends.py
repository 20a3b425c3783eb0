"""`locallb fault --backend NAME --down`: as if that backend refused, until the end that the proxy itself keeps."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.e2e.two_nodes import answers, talking, two_nodes
from tests.support.backends import ask
from tests.support.overrides import FAILS, answer, listeners
from tests.support.stages import Stage, envoys
from tests.support.watching import eventually

pytestmark = pytest.mark.envoy

TOLD = "c/n/web: a fault is ordered by a command: as if refusing, a gets no new TCP connections, until "


@pytest.mark.parametrize("proxies", ["per-service", "shared"])
def test_the_other_backend_has_all_new_connections_until_the_end(proxies: str) -> None:
    """Open ones stay; whoever looks is told; a fault of shares goes beside it; figures are of all."""
    with two_nodes(proxies) as (play, address):
        pids = envoys(play.root)
        eventually(lambda: answers(address) == {"a", "b"})
        with talking(address) as log:
            mine = log("one")
            done = play.run("fault", "web", "--backend", "a", "--down", "--for", "1h")
            assert (done.code, done.err) == (0, "")
            assert answers(address) == {"b"}
            assert TOLD in play.run("preview").err
            assert [notice["reason"] for notice in play.status()["n/web"]["ordered"]] == ["FaultOrdered"]
            (row,) = play.run("fault", "--json").json
            assert (row["down"], row["refuse"], row["by"]) == (["a"], 0, "command")
            (counted,) = play.run("top", "--once", "--json").json["services"]
            assert counted["connections"] >= 40
            assert play.run("fault", "web", "--hang", "0.01%", "--for", "2h").code == 0
            assert [row["down"] for row in play.run("fault", "--json").json] == [[], ["a"]]
            assert answers(address) == {"b"}
            assert play.run("up", "--yes", "--expect-no-changes").code == 0
            assert play.run("fault", "web", "--undo", "--backend", "a").code == 0
            eventually(lambda: answers(address) == {"a", "b"})
            assert log("two") == mine
        play.run("fault", "--undo")
        assert envoys(play.root) == pids


@pytest.mark.parametrize("proxies", ["per-service", "shared"])
def test_no_client_fails_while_orders_come_and_go(proxies: str) -> None:
    """As long as one backend is left: listeners never lead where nothing is yet, or is no more."""
    with two_nodes(proxies) as (play, address), asking(address) as reported:
        for terms in (
            ("fault", "web", "--backend", "a", "--down"),
            ("drain", "web", "--backend", "a"),
            ("fault", "--undo"),
            ("drain", "--undo"),
            ("fault", "web", "--backend", "b", "--down"),
            ("fault", "--undo"),
        ):
            assert play.run(*terms).code == 0
            enough = reported.total() + 50
            eventually(lambda: reported.total() >= enough)  # noqa: B023 - called at once
    assert reported.keys() == {"a: hello", "b: hello"}


@contextmanager
def asking(address: str) -> Iterator[Counter[str]]:
    """Ask again and again, each time by a new connection, and count the answers."""
    reported, over = Counter[str](), threading.Event()

    def ask_on() -> None:
        while not over.is_set():
            reported[answer(address)] += 1

    thread = threading.Thread(target=ask_on)
    thread.start()
    try:
        yield reported
    finally:
        over.set()
        thread.join()


def test_where_all_backends_are_down_clients_are_reset() -> None:
    """The port listens on: nobody else can have it."""
    with two_nodes() as (play, address):
        assert play.run("fault", "web", "--backend", "a", "--backend", "127.0.0.2", "--down").code == 0
        assert {answer(address) for _ in range(20)} <= FAILS
        assert play.status()["n/web"]["state"] == "serving"
        assert play.run("fault", "--undo").out.endswith("No fault is ordered.\n")
        eventually(lambda: answers(address) == {"a", "b"})


def test_down_fault_ends_in_the_proxy_without_another_run() -> None:
    """And the next `up` takes back the last byte of it."""
    with two_nodes() as (play, address):
        plain = listeners(play)
        assert play.run("fault", "web", "--backend", "a", "--backend", "b", "--down", "--for", "15s").code == 0
        faulty = listeners(play)
        assert faulty != plain
        eventually(lambda: ended(play, address))
        assert listeners(play) == faulty
        play.up()
        assert listeners(play) == plain


def ended(play: Stage, address: str) -> bool:
    """Return whether nothing is ordered any more, and clients are served."""
    return play.run("fault", "--json").json == [] and ask(address, 8080)[:1] in {"a", "b"}


def test_invalid_down_order_is_refused_with_one_sentence() -> None:
    """Each with what would."""
    with two_nodes() as (play, _):
        for terms, code, reported in (
            (["web", "--backend", "a"], 2, "--backend NAME and --down belong together"),
            (["web", "--down"], 2, "--backend NAME and --down belong together"),
            (["--backend", "a", "--down"], 2, "name the SERVICE"),
            (["web", "--undo", "--down"], 2, "--undo takes no shares, and no --down"),
            (["web", "--backend", "z", "--down"], 1, "c/n/web has no backend z"),
        ):
            done = play.run("fault", *terms)
            assert (done.code, reported in " ".join(done.err.split())) == (code, True), done.err
