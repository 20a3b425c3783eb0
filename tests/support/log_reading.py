"""Reads a proxy's log in a thread, as `locallb logs` does, or by that command, and tells what lines say of failures."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from locallb.traffic.figures import Line, lines
from locallb.traffic.reading import TrafficReading
from tests.support.stages import Stage

LOCK = "logs.lock"
_RESET = "UpstreamRemoteReset"
"""What Envoy finds wrong with a connection that a backend had accepted before it cut it."""


def is_free(directory: Path) -> bool:
    """Return whether nothing reads a proxy's log."""
    with (directory / LOCK).open() as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


class Reader:
    """Takes lines in a thread; `renews`: it opens the gate again."""

    def __init__(self, directory: Path, *, renews: bool = True) -> None:
        self.reading, self.lines = TrafficReading(), list[Line]()
        self._renews, self._ends = renews, threading.Event()
        assert not list(self.reading.follow([directory]))
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        while not self._ends.is_set():
            for tap, message in self.reading.messages(0.05):
                ended = list(lines(message))
                tap.came += len(ended)
                self.lines += ended
            if self._renews:
                for tap in self.reading.taps.values():
                    tap.renew()

    def clients(self) -> list[str]:
        return [line.client for line in self.lines]

    def stop(self, *, politely: bool = True) -> None:
        """End; not politely: as if killed, with the socket and the gate left as they are."""
        self._ends.set()
        self._thread.join()
        if politely:
            self.reading.end()
        else:
            for key in self.reading._selector.get_map().values():
                for each in filter(None, (key.data[1], key.fileobj)):
                    each.close()
            for tap in self.reading.taps.values():
                os.close(tap._lock)


@contextmanager
def reading(directory: Path, *, renews: bool = True) -> Iterator[Reader]:
    reader = Reader(directory, renews=renews)
    try:
        yield reader
    finally:
        reader.stop()


def was_accepted(line: Line) -> bool:
    """Return whether a backend had accepted the connection: Envoy finds nothing wrong but, perhaps, its end."""
    return bool(line.backend) and set(line.flags) <= {_RESET}


class Logs:
    """The command, and what it printed."""

    def __init__(self, play: Stage, *terms: str) -> None:
        self.file = play.root / "said"
        command = [str(Path(sys.executable).parent / "locallb"), "-C", str(play.root), "logs", "-f", *terms]
        with self.file.open("wb") as file:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT)

    def lines(self) -> list[dict[str, Any]]:
        """Return what it said so far, of `--json`."""
        return [json.loads(line) for line in self.file.read_text().splitlines(keepends=True) if line.endswith("\n")]

    def end(self, number: int) -> int:
        """End it by a signal; return its exit code."""
        self.process.send_signal(number)
        return self.process.wait(60)


@contextmanager
def logs(play: Stage, *terms: str) -> Iterator[Logs]:
    """Run the command, and end it in any case."""
    running = Logs(play, *terms)
    try:
        yield running
    finally:
        running.process.kill()
        running.process.wait()
