"""Validation of an API server's answers, the pages of a list and the lines of a watch, and the pace of requests. Pure.

A list that lacks its items, or is of another kind, must not count as an empty one: all objects would count as removed.
Any answer in another form than Kubernetes' own raises AnswerError with a few words.

Not here: the requests and the following of a list (`kubernetes.api.feed`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from locallb.model.fields import JsonObject
from locallb.model.pacing import Backoff, Pace
from locallb.model.texts import cleaned

IDLE = 10.0
"""Seconds that a watch must live for earlier failures to count no more."""
LISTS = Pace(first=1.0, longest=3.0, floor=1.0, idle=IDLE)
"""Pace of lists: a cluster is near, and its return causes no event."""
WATCHES = Pace(first=0.2, longest=5.0, idle=IDLE)
MAX = 6
"""Requests in a second: a list of three pages, a watch, and two more."""


class WatchPace(Struct, frozen=True):
    """One follower's pace of lists and watches: `wait` before each, and a report after. Time and chance are arguments.

    A watch that lasted is opened again at once; one that ends soon is, a few times, and then less and less often. A
    list that failed, or that the server forgot at once, is repeated after a second at first. Whatever the server
    answers, a follower sends no more than `MAX` requests in a second.
    """

    lists: Backoff = field(default_factory=lambda: Backoff(LISTS))
    watches: Backoff = field(default_factory=lambda: Backoff(WATCHES))

    def opened(self, now: float) -> WatchPace:
        """Note that the server accepted a watch."""
        return WatchPace(self.lists.succeeded(now), self.watches.succeeded(now))

    def ended(self, now: float, chance: float) -> WatchPace:
        """Note that the server ended a watch, as it does with all: how soon decides."""
        if self.watches.is_idle(now):
            return replace(self, watches=Backoff(WATCHES))
        return replace(self, watches=self.watches.failed(now, chance))

    def expedited(self, now: float) -> WatchPace:
        """Begin again as soon as the floor allows."""
        return WatchPace(self.lists.expedited(now), Backoff(WATCHES))

    def broken(self, now: float, chance: float) -> WatchPace:
        """Note that a list or a watch failed: everything is listed again, and that alone keeps watches apart."""
        idle = self.watches.is_idle(now)
        watches = Backoff(WATCHES) if idle else replace(self.watches, healthy_since=math.inf)
        return WatchPace(self.lists.failed(now, chance), watches)


Object: TypeAlias = dict[str, Any]
ADDED, MODIFIED, DELETED, BOOKMARK, ERROR = "ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"
LONGEST_LINE = 16 << 20
"""Bytes of a line of a watch: an object is at most 1.5 MiB in etcd, and JSON may write a byte with six characters."""


class AnswerError(ValueError):
    """This isn't what a Kubernetes API says: a few words."""


class ListPage(Struct, frozen=True):
    """A page of a list."""

    objects: list[Object]
    version: str
    """From which a watch goes on."""
    more: str
    """The `continue` token of the next page; empty on the last one."""


class WatchLine(Struct, frozen=True):
    """A line of a watch: an event of an object, or an error."""

    type: str
    object: Object
    version: str = ""
    """Empty with ERROR."""


def whole(text: bytes) -> Object:
    """Read an answer that is neither list nor watch. Raises AnswerError."""
    return _mapping(_json(text), "the answer")


def list_page(text: bytes, api: str, kind: str) -> ListPage:
    """Parse a page of a list; adds the type to its items, which lack it. Raises AnswerError."""
    document = _mapping(_json(text), "the list")
    if document.get("kind", f"{kind}List") != f"{kind}List":
        raise AnswerError(f"the list is a {document['kind']!s:.60} instead of a {kind}List")
    metadata = _mapping(document.get("metadata"), "the list's metadata")
    if "items" not in document:
        raise AnswerError("the list has no items")
    items = document["items"]
    if not isinstance(items, list | None):
        raise AnswerError(f"the list's items are a {type(items).__name__}")
    objects = [listed(item, api, kind) for item in items or ()]
    return ListPage(objects, _version(metadata), _optional(metadata, "continue"))


def watch_line(text: bytes, api: str, kind: str) -> WatchLine:
    """Read a line of a watch. Raises AnswerError."""
    document = _mapping(_json(text), "a line of the watch")
    sort, about = document.get("type"), _mapping(document.get("object"), "the object in a line of the watch")
    if sort == ERROR:
        return WatchLine(ERROR, about)
    if sort == BOOKMARK:
        return WatchLine(BOOKMARK, about, _version(_mapping(about.get("metadata"), "a bookmark's metadata")))
    if not isinstance(sort, str) or sort not in {ADDED, MODIFIED, DELETED}:
        raise AnswerError(f"a line of the watch has the type {sort!s:.60}")
    read = listed(about, api, kind)
    return WatchLine(sort, read, _version(read["metadata"]))


def listed(value: object, api: str, kind: str) -> Object:
    """Check an object of that kind and add its type. Raises AnswerError."""
    document = _mapping(value, f"a {kind}")
    metadata = _mapping(document.get("metadata"), f"the metadata of a {kind}")
    if document.get("kind", kind) != kind:
        raise AnswerError(f"a {document['kind']!s:.60} came instead of a {kind}")
    if not _optional(metadata, "name"):
        raise AnswerError(f"a {kind} has no name")
    return cleaned({**document, "apiVersion": api, "kind": kind})


def lines(chunks: Iterable[bytes], longest: int = LONGEST_LINE) -> Iterator[bytes | None]:
    """Split chunks into lines; None after each chunk that completes none. Raises AnswerError."""
    rest = bytearray()
    for chunk in chunks:
        first, *others = chunk.split(b"\n")
        rest += first
        if len(rest) > longest:
            raise AnswerError(f"a line of the watch is longer than {longest >> 20} MiB")
        for other in others:
            yield bytes(rest)
            rest[:] = other
        if not others:
            yield None
    if rest.strip():
        raise AnswerError("the watch ended within a line")


def _json(text: bytes) -> object:
    try:
        return json.loads(text)
    except RecursionError:
        raise AnswerError("it is nested too deep") from None
    except ValueError as error:
        raise AnswerError(f"it isn't JSON: {error!s:.100}") from None


def _mapping(value: object, what: str) -> Object:
    if not isinstance(value, dict):
        raise AnswerError(f"{what} is {'missing' if value is None else f'a {type(value).__name__}'}")
    return value


def _version(metadata: JsonObject) -> str:
    version = _optional(metadata, "resourceVersion")
    if not version:
        raise AnswerError("its metadata has no resourceVersion")
    return version


def _optional(metadata: JsonObject, key: str) -> str:
    value = metadata.get(key)
    if not isinstance(value, str | None):
        raise AnswerError(f"its metadata's {key} is a {type(value).__name__}")
    return value or ""
