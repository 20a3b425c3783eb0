"""A `locallb watch` in a process of its own, for tests that change the world beneath it."""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from tests.support.backends import ask
from tests.support.stages import Stage
from tests.support.waiting import TIMEOUT, becomes


class Watch:
    """The process, and what it prints."""

    def __init__(self, play: Stage, *terms: str, program: Sequence[str] = ()) -> None:
        self.log = play.root / f"watch-{time.monotonic_ns()}.log"
        program = program or [str(Path(sys.executable).parent / "locallb")]
        command = [*program, "-C", str(play.root), "watch", *terms]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, "PYTHONFAULTHANDLER": "1"},
            )

    def reported(self) -> str:
        """Return all that was printed so far."""
        return self.log.read_text()

    def stop(self, number: int = signal.SIGTERM) -> int:
        """End it by a signal and give its exit code."""
        self.process.send_signal(number)
        try:
            return self.process.wait(TIMEOUT)
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGABRT)  # it then tells where its threads stand
            self.process.wait(TIMEOUT)
            raise AssertionError(f"it didn't end\n{self.reported()}") from None

    def close(self) -> None:
        if self.process.poll() is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.stop()
            self.process.kill()
            self.process.wait()


@contextlib.contextmanager
def watching(play: Stage, *terms: str) -> Iterator[Watch]:
    watch = Watch(play, *terms)
    try:
        yield watch
    finally:
        watch.close()


def eventually(fact: Callable[[], object], watch: Watch | None = None) -> None:
    """Wait until something is true of what is served: errors until then are part of it, the end of the watch isn't."""

    def is_true() -> bool:
        with contextlib.suppress(OSError, KeyError, IndexError, ValueError):
            if fact():
                return True
        assert watch is None or watch.process.poll() is None, f"the loop ended\n{watch.reported()}"
        return False

    becomes(is_true, watch.reported if watch else "")


def get(watch: Watch, path: str) -> tuple[int, str]:
    """Ask the watch's server, whose port its first line tells."""
    match = re.search(r"http://(127\.0\.0\.1):(\d+)/metrics", watch.reported())
    if not match:
        raise OSError("it doesn't listen yet")
    connection = http.client.HTTPConnection(match[1], int(match[2]), timeout=TIMEOUT)
    with contextlib.closing(connection):
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()


def page_of(watch: Watch) -> str:
    """Return the URL of the live page, which the first line tells."""
    match = re.search(r"page at (http://\S+)", watch.reported())
    if not match:
        raise OSError("it doesn't listen yet")
    return match[1]


def answers(address: str, port: int, name: str) -> bool:
    """Return whether the backend of that name answers there."""
    return ask(address, port) == f"{name}: hello"


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
