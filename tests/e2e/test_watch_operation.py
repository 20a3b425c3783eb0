"""Running `locallb watch`: what it prints, where it is asked how it is, and what signals and supervisors make it do."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator
from functools import partial
from itertools import groupby
from pathlib import Path

import pytest

from locallb.cli.arguments import parse
from tests.e2e.terminals import FIRST_SCREEN, OTHER_SCREEN, Terminal, on_terminal, shell_on_terminal
from tests.support.backends import Backend
from tests.support.manifests import node, port, service
from tests.support.stages import CHECKOUT, Stage
from tests.support.waiting import TIMEOUT
from tests.support.watching import Watch, answers, eventually, get, is_alive, watching

pytestmark = [pytest.mark.envoy, pytest.mark.slow]
Backends = Callable[..., Backend]


def test_lines_metrics_and_health_and_a_stop_that_stops_nothing(play: Stage, backend: Backends) -> None:
    """The run as a service: a line for each thing, numbers and health on the loopback, SIGTERM leaves what serves."""
    web = backend("web")
    play.write("base.yaml", node(), service("web", port(8080, web.port)))
    with watching(play, "--metrics", "127.0.0.1:0") as watch:
        eventually(lambda: get(watch, "/readyz") == (200, "ok\n"), watch)
        assert get(watch, "/healthz") == (200, "ok\n")
        eventually(lambda: 'locallb_services{state="serving"} 1.0' in get(watch, "/metrics")[1], watch)
        assert "locallb_proxies_answering 1.0" in get(watch, "/metrics")[1]
        address, pid = play.addresses()["n/web"], play.pids()["n/web"]
        assert watch.stop() == 0, watch.reported()
    reported = [line.split(" ", 1)[1] for line in watch.reported().splitlines()]
    heads = [head for head, _ in groupby(line.split()[0] for line in reported if "warning" not in line)]
    assert heads[:4] == [  # it plans again where something comes during the first update
        "watching",
        "planned",
        "updated",
        "converged:",
    ]
    assert reported[-1] == "stopped; what serves goes on serving"
    assert answers(address, 8080, "web")
    assert is_alive(pid)


def test_json_lines_are_objects_with_stable_heads(play: Stage) -> None:
    """Each line is one object, also those about what can't be served and what can't be read."""
    play.write("base.yaml", node(), service("web", port(80, 31000)), service("sctp", port(7, 31001, "SCTP")))
    with watching(play, "--json") as watch:
        eventually(lambda: '"converged"' in watch.reported(), watch)
        (play.manifests / "broken.yaml").write_text("{ \x1b[31m\u202e broken")
        eventually(lambda: '"complaint"' in watch.reported(), watch)
        watch.stop()
    records = [json.loads(line) for line in watch.reported().splitlines()]
    assert all({"time", "level", "event", "stack"} <= record.keys() for record in records)
    assert {"started", "planned", "service", "complaint", "stopped"} <= {record["event"] for record in records}
    rejected = {record["service"]: record["reason"] for record in records if record["event"] == "service"}
    assert rejected["c/n/sctp"] == "ProtocolNotSupported"


@pytest.fixture
def supervisor(play: Stage, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    place = play.root / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.settimeout(TIMEOUT)
        listener.bind(str(place))
        monkeypatch.setenv("NOTIFY_SOCKET", str(place))
        monkeypatch.setenv("WATCHDOG_USEC", "400000")
        yield listener


def hears(supervisor: socket.socket, start: str) -> str:
    """Wait for a message; others may come before it."""
    while True:
        message = supervisor.recv(1000).decode()
        if message.startswith(start):
            return message


def test_a_supervisor_hears_ready_reloading_and_stopping(
    play: Stage, backend: Backends, supervisor: socket.socket
) -> None:
    """SIGHUP reads the configuration again; READY ends the reload; the watchdog is fed meanwhile."""
    web = backend("web")
    play.write("base.yaml", node(), service("web", port(8080, web.port)))
    with watching(play) as watch:
        hears(supervisor, "READY=1")
        hears(supervisor, "STATUS=converged")
        hears(supervisor, "WATCHDOG=1")
        before = play.addresses()["n/web"]
        play.configure(pools=[{"name": "p", "addresses": ["127.78.0.0/28"]}])
        watch.process.send_signal(signal.SIGHUP)
        assert "MONOTONIC_USEC=" in hears(supervisor, "RELOADING=1")
        hears(supervisor, "READY=1")
        eventually(lambda: answers(play.addresses()["n/web"], 8080, "web"), watch)
        assert play.addresses()["n/web"] != before
        assert watch.stop() == 0
        hears(supervisor, "STOPPING=1")


PATIENT = """\
import sys
from locallb.watch import hangs
hangs.TIMEOUT = hangs.BUSY_TIMEOUT = 3600.0
from locallb.cli import main
sys.exit(main())
"""
"""A program that waits for what hangs."""


def test_a_stop_in_the_midst_of_slow_operations_leaves_a_valid_state(play: Stage, backend: Backends) -> None:
    """A proxy that hangs holds up its update; one signal waits a moment for it, a second one for nothing."""
    web = backend("web")
    play.write("base.yaml", node(), service("web", port(8080, web.port)), service("keeper", port(8080, web.port)))
    play.up()
    address, pid = play.addresses()["n/keeper"], play.pids()["n/web"]
    for signals in ([signal.SIGTERM], [signal.SIGTERM, signal.SIGINT]):
        with contextlib.closing(Watch(play, program=[sys.executable, "-c", PATIENT])) as watch:
            eventually(lambda: "converged" in watch.reported(), watch)
            before = watch.reported()
            os.kill(pid, signal.SIGSTOP)
            try:
                ports = [port(8080 + number, web.port) for number in range(1 + len(signals))]
                play.write("base.yaml", node(), service("web", *ports), service("keeper", port(8080, web.port)))
                eventually(partial(_is_reported, watch, "1 to do", before), watch)
                for sent in signals:
                    watch.process.send_signal(sent)
                assert watch.process.wait(TIMEOUT) in ({130} if len(signals) > 1 else {0, 130})
            finally:
                os.kill(pid, signal.SIGCONT)
        assert answers(address, 8080, "web")
        assert play.run("state", "check").code == 0
        play.up()
        assert play.pids()["n/web"] == pid
        assert answers(play.addresses()["n/web"], 8080 + len(signals), "web")


def _is_reported(watch: Watch, terms: str, before: str) -> bool:
    return terms in watch.reported().removeprefix(before)


@pytest.mark.parametrize("place", ["0.0.0.0:9477", "192.0.2.1:9477", "localhost:9477"])
def test_metrics_are_for_this_host_only(play: Stage, place: str) -> None:
    """Refused before anything begins, with what to write instead."""
    done = play.spawn("watch", "--metrics", place)
    assert done.code == 2
    assert "127.0.0.1:9477" in done.err
    assert not (play.root / ".state/.pulumi").exists()


def test_a_port_that_others_have_is_reported(play: Stage) -> None:
    """From the configuration as from the command line; nothing begins."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        place = f"127.0.0.1:{other.getsockname()[1]}"
        play.configure(metrics=place)
        done = play.spawn("watch")
    assert done.code == 1
    assert f"{place.replace(':', ' port ')} can't be listened on" in done.err
    assert "Traceback" not in done.err


def test_a_reader_that_goes_away_ends_the_watch_and_nothing_else(play: Stage, backend: Backends) -> None:
    """As `locallb watch | head -1` does."""
    web = backend("web")
    play.write("base.yaml", node(), service("web", port(8080, web.port)))
    play.up()
    command = [str(Path(sys.executable).parent / "locallb"), "-C", str(play.root), "watch"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stderr
        assert "watching" in process.stdout.readline()
        process.stdout.close()
        play.write("more.yaml", service("more", port(8080, web.port)))
        assert "standard output was closed" in process.stderr.read()
        assert process.wait(TIMEOUT) == 1
    assert answers(play.addresses()["n/web"], 8080, "web")


@pytest.fixture
def terminal(play: Stage, backend: Backends) -> Iterator[Terminal]:
    play.write("base.yaml", node(), service("web", port(8080, backend("web").port)))
    with on_terminal(play, "watch") as made:
        yield made


def test_on_a_terminal_there_is_the_view_which_leaves_no_trace(play: Stage, terminal: Terminal) -> None:
    """It follows the terminal's size; a reload leaves it open; `q` ends it, says what goes on, and cuts nothing."""
    terminal.shows(OTHER_SCREEN)
    terminal.shows("1 serving")
    terminal.resize(10, 40)
    terminal.shows("stack dev")
    terminal.process.send_signal(signal.SIGHUP)
    terminal.type("v")
    terminal.shows("configuration")
    terminal.type("\x1a")  # nothing could continue it: there is no shell
    terminal.shows("no shell is here")
    terminal.type("q")
    terminal.shows(FIRST_SCREEN)
    terminal.shows("Stopped watching; 1 Service goes on serving.")
    assert terminal.process.wait(TIMEOUT) == 0
    assert termios.tcgetattr(terminal.master) == terminal.modes
    assert answers(play.addresses()["n/web"], 8080, "web")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_closes_the_view_and_gives_the_terminal_back(terminal: Terminal, number: signal.Signals) -> None:
    """Also while a command that a key started has the terminal."""
    terminal.shows("1 serving")
    terminal.type("t")
    terminal.shows("in 1.")
    terminal.type("\x03")
    terminal.shows("Enter goes back to the view.")
    terminal.process.send_signal(number)
    if number == signal.SIGINT:  # it only ended the wait
        terminal.shows(OTHER_SCREEN)
        terminal.process.send_signal(number)
    terminal.shows("Stopped watching")
    assert terminal.process.wait(TIMEOUT) == 0
    assert termios.tcgetattr(terminal.master) == terminal.modes


def test_a_shell_suspends_and_continues_the_view(play: Stage, backend: Backends) -> None:
    """By Ctrl-Z and `fg`, also after a stop that no program can see."""
    play.write("base.yaml", node(), service("web", port(8080, backend("web").port)))
    with shell_on_terminal(play) as terminal:
        terminal.type("locallb watch\r")
        terminal.shows(OTHER_SCREEN)
        terminal.shows("1 serving")
        terminal.type("\x1a")
        terminal.shows(FIRST_SCREEN)
        terminal.shows("Stopped")
        terminal.type("fg\r")
        terminal.shows(OTHER_SCREEN)
        terminal.shows("1 serving")
        terminal.type("q")
        terminal.shows(FIRST_SCREEN)
        terminal.shows("Stopped watching")
        terminal.type("stty -a | tr -d '\\n'; exit\r")
        terminal.shows(" icanon ")
        terminal.shows(" echo ")


def test_a_terminal_that_goes_away_takes_the_watch_with_it(play: Stage, terminal: Terminal) -> None:
    """SIGHUP means reload, but not from a window that was closed."""
    terminal.shows("1 serving")
    os.close(terminal.master)
    assert terminal.process.wait(TIMEOUT) in {0, 1}
    assert answers(play.addresses()["n/web"], 8080, "web")


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="needs systemd-analyze")
def test_systemd_understands_the_unit(tmp_path: Path) -> None:
    """Every key and value, where systemd's own checker is installed."""
    unit = (CHECKOUT / "deploy/locallb-watch@.service").read_text()
    here = Path(sys.executable).parents[2]
    (tmp_path / "locallb-watch@dev.service").write_text(unit.replace("%h/local-lb", str(here)))
    command = ["systemd-analyze", "--user", "verify", str(tmp_path / "locallb-watch@dev.service")]
    environment = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)}
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment, timeout=60)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_the_unit_for_systemd_runs_a_command_that_exists() -> None:
    """Its options are ours, its reload is our signal, and it ends nothing but the loop."""
    unit = (CHECKOUT / "deploy/locallb-watch@.service").read_text()
    lines = dict(line.split("=", 1) for line in unit.splitlines() if "=" in line and not line.startswith("#"))
    terms = shlex.split(lines["ExecStart"])
    arguments = parse(terms[1:])
    assert (terms[0], arguments.command, arguments.stack) == ("%h/local-lb/.venv/bin/locallb", "watch", "%i")
    assert (lines["Type"], lines["KillMode"], lines["ExecReload"]) == ("notify", "process", "/bin/kill -HUP $MAINPID")
