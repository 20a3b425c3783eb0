"""The log of one load balancer for each reader of the live page: connections and requests as they end.

One thread reads the access logs of all proxies for which there are readers, as `locallb logs` does, and nothing while
there are none. A reader that is slow loses lines, which are counted.

Not here: the page (`page`), and how a proxy is read (`traffic.reading`).
"""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from threading import Condition

from locallb.cli.traffic import line_text, proxy_directories
from locallb.model.identities import ObjectKey
from locallb.planning.planned import Plan
from locallb.report.wording import visible
from locallb.threads import SupervisedThread, Task
from locallb.traffic.figures import Line, lines, services_by_listener
from locallb.traffic.reading import PACE, TrafficReading

RETAINED = 500
"""Lines that wait for a reader."""
INSPECTED = 5.0
"""Seconds until a proxy that couldn't be read is tried again."""
_OFF = "Proxies of this stack keep no log: set local-lb:accessLogs to true, which cuts no connection."
_TOO_MANY = "The proxy had more lines than are read: some are left out."


class LogReader:
    """One reader: a stream of server-sent events."""

    def __init__(self, service: str, closed: Callable[[LogReader], None]) -> None:
        self.service = service
        self._closed = closed
        self._waiting: deque[str] = deque(maxlen=RETAINED)
        self._lost = 0
        self._notice = self._reported = ""

    def add(self, line: str) -> None:
        self._lost += len(self._waiting) == RETAINED
        self._waiting.append(line)

    def note(self, sentence: str) -> None:
        """Say how the reading goes; empty where it goes well."""
        self._notice = sentence

    def read(self) -> bytes:
        some = [self._waiting.popleft() for _ in range(len(self._waiting))]  # no more, however fast they come
        lost, self._lost = self._lost, 0
        notice, before = self._notice, self._reported
        if not some and not lost and notice == before:
            return b""
        self._reported = notice
        new = json.dumps(notice if notice != before else "")
        text = f'{{"lines":[{",".join(some)}],"lost":{lost},"notice":{new}}}'
        return f"data: {text}\n\n".encode("ascii")

    def close(self) -> None:
        self._closed(self)


class PageLogs:
    """Reads from `start` until `stop`. Other methods may be called from any thread."""

    def __init__(self, plan: Callable[[], Plan], is_recorded: Callable[[], bool], wake: Callable[[], None]) -> None:
        """`is_recorded`: whether proxies have been asked to keep logs."""
        self._plan, self._is_recorded, self._wake = plan, is_recorded, wake
        self._changed = Condition()
        self._readers: tuple[LogReader, ...] = ()
        self._thread = SupervisedThread(Task.PAGE, "page's logs", self._follow)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._thread.stop()
        with self._changed:
            self._changed.notify_all()
        self._thread.join(1.0)

    def open(self, service: str) -> LogReader:
        reader = LogReader(service, self._close)
        with self._changed:
            self._readers = (*self._readers, reader)
            self._changed.notify_all()
        return reader

    def _close(self, reader: LogReader) -> None:
        with self._changed:
            self._readers = tuple(each for each in self._readers if each is not reader)

    def _follow(self) -> None:
        reading = TrafficReading()
        try:
            while not self._thread.stopped.is_set():
                with self._changed:
                    self._changed.wait_for(lambda: self._readers or self._thread.stopped.is_set())
                while self._readers and not self._thread.stopped.is_set():
                    self._read(reading, self._readers, self._plan())
                list(reading.follow(()))
        finally:
            reading.end()

    def _read(self, reading: TrafficReading, readers: tuple[LogReader, ...], plan: Plan) -> None:
        """Read for these readers by this plan while they are the only ones, at most a few seconds."""
        keys = {str(placement.key): placement.key for placement in plan.placements}
        places = {
            reader: proxy_directories(plan, [keys[reader.service]] if reader.service in keys else [])
            for reader in readers
        }
        failures = list(reading.follow({path for paths in places.values() for path in paths}))
        for reader, paths in places.items():
            reader.note(_notice(paths, failures) if self._is_recorded() else _OFF)
        services = {name: str(key) for name, key in services_by_listener(plan).items()}
        until = time.monotonic() + INSPECTED
        while readers == self._readers and time.monotonic() < until and not self._thread.stopped.is_set():
            for tap, message in reading.messages(PACE):
                with suppress(ValueError):  # no message of Envoy's
                    ended = list(lines(message))
                    tap.came += len(ended)
                    _pass_on(ended, services, keys, readers)
            renewed = [tap.renew() for tap in reading.taps.values()]
            if any(renewed):
                for reader in readers:
                    reader.note(_TOO_MANY)
            self._wake()


def _notice(paths: Iterable[Path], failures: Iterable[str]) -> str:
    """Return why a reader gets no lines; empty where it does."""
    names = [str(path) for path in paths]
    if not names:
        return "It has no proxy now."
    return visible(next((failure for failure in failures if any(name in failure for name in names)), ""))


def _pass_on(
    ended: Iterable[Line], services: Mapping[str, str], keys: Mapping[str, ObjectKey], readers: Iterable[LogReader]
) -> None:
    for line in ended:
        service = services.get(line.listener, "")
        concerned = [reader for reader in readers if reader.service == service]
        if concerned:
            text = _text(keys[service], line)
            for reader in concerned:
                reader.add(text)


def _text(key: ObjectKey, line: Line) -> str:
    """Write a line as `locallb logs` does, in parts: texts, and whether each is bad news."""
    parts = [(part, "") if isinstance(part, str) else part for part in line_text(key, line)]
    return json.dumps([[visible(text.replace(f"{key}:", ":")), style == "red"] for text, style in parts if text])
