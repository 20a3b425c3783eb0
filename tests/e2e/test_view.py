"""`locallb view` on a terminal, of a stack that serves, until a key or a signal closes it."""

from __future__ import annotations

import os
import signal
import sys
import termios
from collections.abc import Callable

import pytest

from tests.e2e.terminals import FIRST_SCREEN, OTHER_SCREEN, Terminal, ended, on_terminal
from tests.support.backends import Backend
from tests.support.manifests import node, port, service
from tests.support.stages import Stage
from tests.support.waiting import TIMEOUT


@pytest.mark.envoy
def test_it_shows_what_serves_and_leaves_the_terminal_as_it_was(play: Stage, backend: Callable[..., Backend]) -> None:
    """`q` closes it, with what goes on; a signal as well, and a command that a key runs has the terminal meanwhile."""
    play.write("web.yaml", node(), service("web", port(8080, backend("web").port)))
    play.up()
    with on_terminal(play, "view") as terminal:
        terminal.shows(OTHER_SCREEN)
        terminal.shows("serving")
        terminal.type("d\r")
        terminal.shows("Enter goes back to the view.")
        assert [each["all"] for each in play.run("drain", "--json").json] == [True]
        terminal.type("\r")
        terminal.shows("degraded")
        terminal.type("q")
        terminal.shows(FIRST_SCREEN)
        terminal.shows("Closed the view")
        assert terminal.process.wait(TIMEOUT) == 0
        assert termios.tcgetattr(terminal.master) == terminal.modes
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        with on_terminal(play, "view") as terminal:
            terminal.shows("web")
            terminal.process.send_signal(number)
            terminal.shows(FIRST_SCREEN)
            terminal.shows("Closed the view")
            assert terminal.process.wait(TIMEOUT) == 0


def test_a_terminal_that_goes_away_ends_it(play: Stage) -> None:
    play.write("web.yaml", node())
    with on_terminal(play, "view") as terminal:
        terminal.shows(OTHER_SCREEN)
        os.close(terminal.master)
        assert terminal.process.wait(TIMEOUT) == 0


def test_without_a_terminal_it_says_what_prints_lines(play: Stage) -> None:
    play.write("web.yaml", node())
    for terms in (["view"], ["view", "--json"]):
        done = play.run(*terms)
        assert done.code == 1
        assert "status --watch` prints" in done.err


def test_an_end_at_once_gives_the_terminal_back() -> None:
    """As a second signal asks for, when what draws is held up."""
    script = (
        "import sys, tty\n"
        "from locallb.cli.watching.supervision import Signals\n"
        "signals = Signals(lambda: None, lambda: None, on_terminal=True)\n"
        "tty.setraw(0)\n"
        "sys.stdout.write('begun'); sys.stdout.flush()\n"
        "signals.leave()\n"
    )
    with ended(Terminal([sys.executable, "-c", script])) as terminal:
        terminal.shows("begun")
        terminal.shows(FIRST_SCREEN)
        assert terminal.process.wait(TIMEOUT) == 130
        assert termios.tcgetattr(terminal.master) == terminal.modes
