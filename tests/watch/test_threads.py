"""Threads that can't end unseen: what escapes is told, counted and begun again; nothing else starts threads."""

from __future__ import annotations

import ast
import errno
import threading
from pathlib import Path

import pytest

from locallb import threads as supervised
from locallb.model.pacing import Pace
from locallb.threads import Escape, SupervisedThread, Task, Threads
from tests.support.waiting import TIMEOUT, becomes

QUICK = Pace(first=0.01, longest=0.02)
ROOT = Path(__file__).resolve().parents[2]


class Odd(BaseException):
    """What a library in another language may raise."""


class Mute(Exception):  # noqa: N818 - an error that is one in itself
    """It can't say what it is."""

    def __str__(self) -> str:
        raise ValueError


@pytest.mark.parametrize("error", [ValueError("bad\nvalue"), SystemExit(1), Odd(), Mute(), None])
def test_escaped_exception_is_reported_and_the_thread_restarts(
    error: BaseException | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the work just returns; in one line, with the place in our code if there is one."""
    mine, reported, failed = Threads(), list[Escape](), list[str]()
    monkeypatch.setattr(supervised, "THREADS", mine)
    mine.listen(reported.append)
    begun: list[str] = []

    def work() -> None:
        begun.append(mine.failure("demo"))
        if len(begun) < 3:
            if error is None:
                return
            raise error
        thread.stopped.wait()

    thread = SupervisedThread(Task.FOLDER, "watch x", work, subject="demo", failed=failed.append, pace=QUICK)
    thread.start()
    becomes(lambda: len(begun) == 3)
    assert begun == ["", "", ""], "a thread that works isn't in trouble"
    assert mine.counts()[Task.FOLDER] == 2
    assert [escape.sentence for escape in reported] == failed
    name = type(error).__name__ if error else "EndedError"
    assert all(f"the thread watch x broke off by a mistake in local-lb ({name}" in text for text in failed)
    assert not any("\n" in text for text in failed)
    thread.stop()
    assert thread.join(TIMEOUT)
    assert len(reported) == 2, "an end that was asked for is none"


def test_failing_thread_is_restarted_with_back_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where no memory is left: it would be tried as often as a processor can."""
    begun = []

    def work() -> None:
        begun.append(1)
        raise MemoryError

    def untold(*_: object) -> str:
        raise MemoryError

    monkeypatch.setattr(Threads, "escaped", untold)
    waits: list[float] = []

    def wait(seconds: float) -> bool:
        waits.append(seconds)
        if len(waits) > 5:
            thread.stop()
        return False

    thread = SupervisedThread(Task.FOLDER, "watch x", work, pace=Pace(first=0.01, longest=60.0))
    monkeypatch.setattr(thread.stopped, "wait", wait)
    thread.start()
    assert thread.join(TIMEOUT)
    assert len(begun) == len(waits) == 6
    assert all(seconds > 0 for seconds in waits)


@pytest.mark.parametrize(
    ("error", "reported"),
    [
        (OSError(errno.EMFILE, "Too many open files", "/f"), "/f: Too many open files; raise the limit of open files"),
        (OSError(errno.ENOSPC, "No space left on device"), "No space left on device; make room on that disk"),
        (RuntimeError("can't start new thread"), "this host gives no more memory or threads (RuntimeError: can't"),
        (MemoryError(), "this host gives no more memory or threads (MemoryError); end other programs"),
    ],
)
def test_host_limits_are_reported_with_the_remedy_and_not_as_bugs(error: BaseException, reported: str) -> None:
    """The sentence doesn't ask for a report."""
    sentence = Threads().escaped(Task.LOOP, "loop", error)
    assert sentence.startswith(f"the thread loop broke off: {reported}")
    assert "report" not in sentence


def test_a_thread_that_waits_to_begin_again_is_in_trouble(monkeypatch: pytest.MonkeyPatch) -> None:
    """For the source that depends on it and for the whole; stopping ends both the wait and the trouble."""
    mine = Threads()
    monkeypatch.setattr(supervised, "THREADS", mine)

    def work() -> None:
        raise ValueError

    thread = SupervisedThread(Task.FOLDER, "watch x", work, subject="demo", pace=Pace(first=3600, longest=3600))
    thread.start()
    becomes(lambda: mine.failure("demo"))
    assert mine.failure() == mine.failure("demo")
    assert not mine.failure("other")
    thread.stop()
    assert thread.join(TIMEOUT)
    assert not mine.failure()


def test_a_thread_that_is_stopped_while_it_fails_leaves_no_trouble(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody needs it any more: the process would never be ready again."""
    mine = Threads()
    monkeypatch.setattr(supervised, "THREADS", mine)
    mine.listen(lambda _escape: thread.stop())
    thread = SupervisedThread(Task.FOLDER, "watch x", lambda: None, subject="demo", pace=QUICK)
    thread.start()
    assert thread.join(TIMEOUT)
    assert not mine.failure()


def test_a_listener_that_fails_ends_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does who was to be told by `failed`."""
    mine, begun = Threads(), list[int]()
    monkeypatch.setattr(supervised, "THREADS", mine)

    def fail(_reported: object) -> None:
        raise ValueError

    def work() -> None:
        begun.append(1)
        raise KeyError

    mine.listen(fail)
    thread = SupervisedThread(Task.HEALTH, "health", work, failed=fail, pace=QUICK)
    thread.start()
    becomes(lambda: len(begun) > 2)
    thread.stop()
    assert thread.join(TIMEOUT)


def test_work_that_fails_again_and_again_waits_longer_and_one_that_lived_begins_soon(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By the one back-off of everything; a long life forgives what was before."""
    waits: list[float] = []
    now = [0.0]
    lives = [0.0] * 8 + [supervised.RETRY_DELAY.idle, 0.0]
    monkeypatch.setattr(supervised, "THREADS", Threads())
    monkeypatch.setattr("locallb.threads.time.monotonic", lambda: now[0])
    monkeypatch.setattr("locallb.threads.jitter", lambda: 0.0)

    class Stopped(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            waits.append(timeout or 0.0)
            now[0] += timeout or 0.0
            return False

    stopped = Stopped()

    def work() -> None:
        if not lives:
            stopped.set()
            return
        now[0] += lives.pop(0)
        raise ValueError

    SupervisedThread(Task.EXITS, "exits", work, stopped=stopped)._run()
    first = supervised.RETRY_DELAY.first
    assert waits[:3] == pytest.approx([first, 2 * first, 4 * first])
    assert max(waits) == pytest.approx(supervised.RETRY_DELAY.longest)
    assert waits[8:] == pytest.approx([first, 2 * first])


THREADS_OF_THEIR_OWN = {
    "locallb/threads.py": "the one place",
    "locallb/cli/view/app.py": "its timers are tasks of Textual's loop",
    "locallb/engine/core/executor.py": "each outcome and mistake goes to the core's thread, which waits for it",
    "locallb/engine/core/interrupts.py": "passes signals on until its pipe is closed, and is waited for",
    "locallb/engine/program_update.py": "waited for by whoever starts it, with its outcome",
}


STARTERS = {"Thread", "Timer", "ThreadingMixIn", "ThreadingHTTPServer", "ThreadingTCPServer", "start_new_thread"}


@pytest.mark.checkout
def test_only_listed_modules_start_threads() -> None:
    """By name or by what starts threads itself; pools pass failures to the thread that waits for the result."""
    offenders = []
    for path in sorted((ROOT / "locallb").rglob("*.py")):
        name = str(path.relative_to(ROOT))
        if name in THREADS_OF_THEIR_OWN:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            named = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
            brought = [name.name for name in node.names] if isinstance(node, ast.ImportFrom | ast.Import) else []
            if {named, *brought} & STARTERS or "_thread" in brought:
                offenders.append(f"{name}:{getattr(node, 'lineno', 0)}")
    assert offenders == []
