"""Reports events in a thread of its own, as log lines or in another form."""

from __future__ import annotations

import errno
import time
from collections.abc import Callable, Mapping, Sequence
from io import RawIOBase
from typing import Protocol

from locallb.cli.watching.board import Board, EventBatch, Relay, View
from locallb.cli.watching.log import LogLevel, LogRecord, Narrator
from locallb.model.texts import counted
from locallb.planning.service_rows import Observation
from locallb.threads import SupervisedThread, Task

_REMOVED = {errno.EPIPE, errno.EIO, errno.EBADF}
"""Errors of an output without a reader: a closed pipe, a terminal that hung up."""


class EventSink(Protocol):
    """A form in which events are reported."""

    @property
    def pace(self) -> float:
        """Seconds between two times at least."""

    def open(self) -> None:
        """Begin."""

    def show(self, records: Sequence[LogRecord], board: Board, views: Sequence[View]) -> None:
        """Report what is new. Raises OSError where it can't."""

    def close(self) -> None:
        """End."""


class Lines:
    """One line per record, on an unbuffered stream: failed writes are known immediately."""

    pace = 0.05

    def __init__(self, stream: RawIOBase, form: Callable[[LogRecord], str]) -> None:
        self._stream = stream
        self._form = form
        self._lost = 0
        self._cut = False
        """Whether the last line is there only in part."""

    def open(self) -> None:
        """Begin: nothing to do."""

    def show(self, records: Sequence[LogRecord], board: Board, views: Sequence[View]) -> None:
        """Write the records. Where there is no room, lines are dropped and counted. Raises OSError without a reader."""
        del board, views
        for record in records:
            if self._lost:
                sentence = f"{counted(self._lost, 'line')} could not be written"
                if self._write(LogRecord(record.at, LogLevel.WARNING, "lost", sentence, {"count": self._lost})):
                    self._lost = 0
            self._lost += not self._write(record)

    def close(self) -> None:
        """End: nothing to do."""

    def _write(self, record: LogRecord) -> bool:
        """Write one; return whether all of it was written."""
        remaining = f"{chr(10) if self._cut else ''}{self._form(record)}\n".encode(errors="replace")
        try:
            while remaining and (claimed := self._stream.write(remaining)):  # None: the stream is non-blocking and full
                remaining = remaining[claimed:]
                self._cut = bool(remaining)
        except OSError as error:
            if error.errno in _REMOVED:
                raise
        return not remaining


class EventReporter:
    """Reports from `start` until the loop has stopped; `removed` is called if nothing reads the output any more."""

    def __init__(
        self,
        relay: Relay,
        face: EventSink,
        observed: Callable[[], Mapping[str, Observation | None]],
        removed: Callable[[OSError], None],
    ) -> None:
        self._relay = relay
        self._face = face
        self._observed = observed
        self._removed = removed
        self._board, self._narrator = Board(), Narrator()
        self._first: tuple[LogRecord, ...] = ()
        """Records that are printed before all others."""
        self._thread = SupervisedThread(Task.TELLER, "teller", self._run)

    def start(self, *first: LogRecord) -> None:
        self._face.open()
        self._first = first
        self._thread.start()

    def join(self, seconds: float) -> bool:
        """Wait until the last records are written; return whether they were."""
        return self._thread.join(seconds)

    def close(self) -> None:
        """Leave the terminal or stream as it was found."""
        self._face.close()

    def _run(self) -> None:
        try:
            first, self._first = self._first, ()
            self._face.show(first, Board(), ())
            while not self._board.stopped:
                self._relay.wait()
                time.sleep(self._face.pace)  # not while the loop goes on with what it just told
                self._report(self._relay.take(0))
        except OSError as error:
            self._removed(error)
        self._thread.stop()

    def _report(self, batch: EventBatch) -> None:
        board, narrator = self._board, self._narrator
        board.observed = self._observed()
        board.take(batch)
        views = board.views()
        records = [*narrator.report_to(batch, views), *narrator.services(time.time(), views)]
        self._face.show(records, board, views)
