"""The current content of the live page, and the pending updates of each of its readers.

Every part has the number of its last change; a reader that has everything up to a number gets the later parts, however
slow it is. So nothing waits for a slow reader, and each has at most one message pending. Not here: the content of the
texts.
"""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from threading import Condition

from msgspec import Struct

SILENCE = 4.0
"""Seconds after which a reader gets a sign of life."""
NOTHING = "[]"
"""The rates of a lane where nothing flows."""
LOG = 100
"""Lines of what happened that are kept."""
REMOVED = 2000
"""Maximum removed lanes that are remembered; a reader with an older state gets all lanes instead."""


class Part(Struct, frozen=True):
    """A JSON text, and which change brought it."""

    number: int
    text: str


class Feed:
    """Texts are JSON in ASCII. Methods may be called from any thread."""

    def __init__(self, pulse: Callable[[], str]) -> None:
        self._pulse = pulse
        """Gives the JSON text of how the loop is at the moment."""
        self._changed = Condition()
        self._number = 0
        self._head = Part(0, "{}")
        self._lanes: dict[str, Part] = {}
        self._rates: dict[str, Part] = {}
        self._log: deque[Part] = deque(maxlen=LOG)
        self._removed: dict[str, int] = {}
        self._forgotten = 0
        """Number up to which removed lanes are forgotten."""
        self._readers = 0
        self._drawn = False
        self._ended = False

    @property
    def is_read(self) -> bool:
        """Whether the page has readers."""
        return self._readers > 0

    def wait_for_readers(self) -> bool:
        """Wait for a reader or the end; return False after the end."""
        with self._changed:
            self._changed.wait_for(lambda: self.is_read or self._ended)
            return not self._ended

    def end(self) -> None:
        """Mark the end, and wake the thread that waits for readers."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def draw(self, head: str, lanes: Mapping[str, str]) -> None:
        """Set the current content of every lane."""
        with self._changed:
            self._number += 1
            self._drawn = True
            if head != self._head.text:
                self._head = Part(self._number, head)
            self._put(self._lanes, lanes)
            for name in self._lanes.keys() - lanes.keys():
                del self._lanes[name]
                self._removed[name] = self._number
            self._put(self._rates, dict.fromkeys(self._rates.keys() - lanes.keys(), NOTHING))
            self._forget(lanes)

    def flow(self, rates: Mapping[str, str]) -> None:
        """Take what flows now, of every lane where something does."""
        with self._changed:
            self._number += 1
            flowing = {name: text for name, text in rates.items() if name in self._lanes}
            self._put(self._rates, {**dict.fromkeys(self._rates, NOTHING), **flowing})

    def log(self, lines: Iterable[str]) -> None:
        """Take what happened."""
        with self._changed:
            self._number += 1
            self._log.extend(Part(self._number, line) for line in lines)

    def open(self) -> Reader:
        """Add a reader."""
        with self._changed:
            self._readers += 1
            self._changed.notify_all()
            return Reader(self)

    def close(self) -> None:
        """Note that one looks no more."""
        with self._changed:
            self._readers -= 1

    def since(self, number: int) -> tuple[int, str]:
        """Return the news as text, empty if there are none, and the number of the latest change in it."""
        with self._changed:
            if not self._drawn or number == self._number:
                return number, ""
            whole = number < self._forgotten or not number
            existing = 0 if whole else number
            parts = {
                "whole": "true" if whole else "false",
                "head": self._head.text if self._head.number > existing else "null",
                "lanes": _object(self._lanes, existing),
                "gone": _list(json.dumps(name) for name, at in self._removed.items() if at > existing and not whole),
                "rates": _object(self._rates, existing),
                "log": _list(part.text for part in self._log if part.number > existing),
                "pulse": self._pulse(),
            }
            return self._number, _json(parts)

    def beat(self) -> str:
        """Return a message that only keeps the connection alive."""
        return _json({"pulse": self._pulse()})

    def _put(self, parts: dict[str, Part], texts: Mapping[str, str]) -> None:
        for name, text in texts.items():
            if name not in parts or parts[name].text != text:
                parts[name] = Part(self._number, text)

    def _forget(self, lanes: Mapping[str, str]) -> None:
        for name in [name for name in self._removed if name in lanes]:
            del self._removed[name]
        while len(self._removed) > REMOVED:
            name = next(iter(self._removed))
            self._forgotten = self._removed.pop(name)
            self._rates.pop(name, None)


class Reader:
    """One reader of the page: a stream of server-sent events."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self._number = 0
        self._reported = 0.0

    def read(self) -> bytes:
        """Return what is new; after a while without news, a keep-alive message."""
        now = time.monotonic()
        self._number, text = self._feed.since(self._number)
        if not text and now - self._reported >= SILENCE:
            text = self._feed.beat()
        if not text:
            return b""
        self._reported = now
        return f"data: {text}\n\n".encode("ascii")

    def close(self) -> None:
        """Remove this reader."""
        self._feed.close()


def _json(parts: Mapping[str, str]) -> str:
    members = ",".join(f"{json.dumps(name)}:{text}" for name, text in parts.items())
    return f"{{{members}}}"


def _object(parts: Mapping[str, Part], existing: int) -> str:
    return _json({name: part.text for name, part in parts.items() if part.number > existing})


def _list(texts: Iterable[str]) -> str:
    return f"[{','.join(texts)}]"
