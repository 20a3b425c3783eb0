"""Reads a proxy's log in a thread, as `locallb logs` does, and tells what a line says of a connection that failed."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from locallb.traffic.figures import Line, lines
from locallb.traffic.reading import TrafficReading

_RESET = "UpstreamRemoteReset"
"""What Envoy finds wrong with a connection that a backend had accepted before it cut it."""


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
