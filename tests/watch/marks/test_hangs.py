"""Who asks proxies whether they answer: processes that listen as an Envoy does and answer when they are told to.

The time is played, the sockets and processes are real.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, chdir
from pathlib import Path

import pytest

from locallb.envoy import ADMIN_SOCKET
from locallb.envoy.document import reading_time
from locallb.model.identities import RunIdentity
from locallb.runtimes import processes
from locallb.runtimes.processes import Activity, Process, ProcessError
from locallb.watch import hangs
from locallb.watch.hangs import BUSY_TIMEOUT, EVERY, GLANCE, TIMEOUT, HangWatch
from tests.support.waiting import becomes

_LISTENS = """\
import socket, sys
listening = socket.socket(socket.AF_UNIX)
listening.bind(sys.argv[1])
listening.listen(int(sys.argv[2]))
print("listens", flush=True)
for _ in sys.stdin:
    client, _ = listening.accept()
    client.recv(4096)
    client.sendall(b"HTTP/1.1 200 OK\\r\\n\\r\\n")
    client.close()
"""


class Listener:
    """A process that listens, and answers one question each time it is told to."""

    def __init__(self, directory: Path, queue: int) -> None:
        command = [sys.executable, "-c", _LISTENS, ADMIN_SOCKET, str(queue)]
        self.process = subprocess.Popen(command, cwd=directory, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self.process.stdout
        assert self.process.stdout.readline() == b"listens\n"
        becomes(lambda: (stat := processes._stat(self.process.pid)) and stat.state == "S")

    def answer(self) -> None:
        assert self.process.stdin
        self.process.stdin.write(b"\n")
        self.process.stdin.flush()

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


class Asking:
    """Asks one proxy, at times that are played."""

    def __init__(self, directory: Path) -> None:
        self.changed: list[str] = []
        self.watch = HangWatch(self.changed.append)
        self.watch._take({"web": directory})

    def passes(self, seconds: float, sighting: Callable[[], None] = lambda: None) -> None:
        """Let time pass, in which all goes its way."""
        end = self.watch._now + seconds
        while self.watch._now < end:
            sighting()
            self.watch._woke = time.monotonic()
            self.watch._turn()
            self.watch._wait(0.0)
            self.watch._now += GLANCE

    def is_requested(self) -> bool:
        """Return whether a question waits for its answer."""
        return self.watch._proxies["web"].question is not None

    def hears(self, fact: Callable[[], bool]) -> None:
        """Take what comes, until something is true; no time passes."""

        def heard() -> bool:
            now = self.watch._now
            self.watch._wait(0.0)
            self.watch._now = now
            return fact()

        becomes(heard)


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[Callable[..., Listener]]:
    with ExitStack() as stack:

        def made(queue: int = 10) -> Listener:
            listening = Listener(tmp_path, queue)
            stack.callback(listening.end)
            return listening

        yield made


@pytest.fixture
def asking(tmp_path: Path) -> Iterator[Asking]:
    made = Asking(tmp_path)
    yield made
    made.watch._take({})


def observed(monkeypatch: pytest.MonkeyPatch, activity: Activity | ProcessError | None) -> None:
    def reported(_pid: int) -> Activity | None:
        if isinstance(activity, ProcessError):
            raise activity
        return activity

    monkeypatch.setattr(processes, "activity", reported)


def test_a_process_that_does_nothing_and_answers_nothing_hangs_until_it_answers(
    listener: Callable[..., Listener], asking: Asking
) -> None:
    """The very process that was asked is named; each change is told once."""
    listening = listener()
    asking.passes(TIMEOUT - 1)
    assert not asking.watch.hanging
    asking.passes(3)
    (hang,) = asking.watch.hanging.values()
    process = processes.identify(listening.process.pid)
    assert process
    assert hang.process == RunIdentity.of_process(process.pid, process.started)
    assert hang.since + TIMEOUT <= time.monotonic()
    asking.passes(100)
    assert asking.changed == ["web"]
    listening.answer()
    asking.hears(lambda: not asking.watch.hanging)
    assert asking.changed == ["web", "web"]


def test_one_that_answers_is_asked_again_and_never_hangs(listener: Callable[..., Listener], asking: Asking) -> None:
    """Once in a while."""
    listening = listener()
    for _ in range(20):
        asking.passes(EVERY + 2 * GLANCE)
        assert asking.is_requested()
        listening.answer()
        asking.hears(lambda: not asking.is_requested())
    assert not asking.changed


AT_WORK = Activity(Process(1, "boot.1"), "R", 0)
CASES: Mapping[str, tuple[Activity | ProcessError | None, float]] = {
    "it computes": (AT_WORK, 0),
    "it waits for a disk": (Activity(Process(1, "boot.1"), "D", 0), 0),
    "it computes and has a large file": (AT_WORK, 1e6),
    "it can't be seen": (None, 0),
    "nothing can be seen": (ProcessError("no descriptor is left"), 0),
}


@pytest.mark.parametrize("case", CASES)
def test_one_that_computes_waits_for_a_disk_or_cannot_be_seen_has_longer(
    case: str, listener: Callable[..., Listener], asking: Asking, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As long as it takes to read its files, and some more."""
    activity, size = CASES[case]
    after = BUSY_TIMEOUT + reading_time(int(size))
    (tmp_path / "lds.json").write_text("x" * int(size))
    observed(monkeypatch, activity)
    listener()
    asking.passes(after - 1)
    assert not asking.watch.hanging
    asking.passes(3)
    (hang,) = asking.watch.hanging.values()
    assert (hang.process is None) == (not isinstance(activity, Activity))


def test_one_whose_queue_is_full_is_asked_again_and_has_longer(
    listener: Callable[..., Listener], asking: Asking, tmp_path: Path
) -> None:
    """Others ask it as well: what the queue refused was no question. One that frees its queue is fine."""
    listening = listener(0)
    with chdir(tmp_path), ExitStack() as stack:
        client = stack.enter_context(socket.socket(socket.AF_UNIX))
        client.connect(ADMIN_SOCKET)
        asking.passes(BUSY_TIMEOUT - 1)
        assert not asking.is_requested()
        client.sendall(b"GET")
        listening.answer()
        assert client.recv(4096)
    asking.passes(TIMEOUT - 1)
    assert asking.is_requested(), "it has a turn of its own"
    assert not asking.changed
    listening.answer()
    asking.hears(lambda: not asking.is_requested())
    with chdir(tmp_path), socket.socket(socket.AF_UNIX) as client:
        client.connect(ADMIN_SOCKET)
        asking.passes(BUSY_TIMEOUT + EVERY + 1)
    (hang,) = asking.watch.hanging.values()
    assert hang.process is None


def test_one_that_isnt_there_or_ends_does_not_hang(listener: Callable[..., Listener], asking: Asking) -> None:
    """Its end is told by others."""
    asking.passes(100)
    assert not asking.changed
    listening = listener()
    asking.passes(TIMEOUT + 5)
    assert asking.changed == ["web"]
    listening.end()
    asking.hears(lambda: not asking.watch.hanging)
    asking.passes(100)
    assert asking.changed == ["web", "web"]


def test_time_in_which_this_process_stood_still_is_no_silence(
    listener: Callable[..., Listener], asking: Asking
) -> None:
    """As a host that was suspended, or a machine that is moved: whoever was asked stood still as well."""
    listener()
    asking.passes(1)
    before = asking.watch._now
    asking.watch._woke = time.monotonic() - 3600
    asking.watch._wait(GLANCE)
    asking.watch._turn()
    assert asking.watch._now - before < TIMEOUT / 2
    assert not asking.watch.hanging


def test_a_proxy_that_is_planned_no_more_is_asked_no_more(listener: Callable[..., Listener], asking: Asking) -> None:
    """Nobody would start it again; one that has its name in another place begins anew."""
    listener()
    asking.passes(TIMEOUT + 1)
    assert asking.watch.hanging
    asking.watch._take({})
    assert not asking.watch.hanging
    assert not asking.watch._proxies
    assert len(asking.watch._selector.get_map()) == 0


def test_a_thread_asks_until_it_is_stopped_and_leaves_no_descriptor(
    listener: Callable[..., Listener], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is to be asked is taken over while it waits."""
    monkeypatch.setattr(hangs, "EVERY", 0.01)
    before, changed = set(Path("/proc/self/fd").iterdir()), list[str]()
    watch, listening = HangWatch(changed.append), listener()
    watch.follow({})
    watch.follow({"web": tmp_path})
    for _ in range(3):
        listening.answer()
    becomes(lambda: (proxy := watch._proxies.get("web")) is not None and proxy.hangs.is_healthy)
    watch.stop()
    assert watch._thread.join(20)
    watch.follow({"web": tmp_path})
    listening.end()
    listening_pipes = 2
    assert len(set(Path("/proc/self/fd").iterdir()) - before) <= listening_pipes
    assert not changed
