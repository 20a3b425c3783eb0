"""What an update did so far, beside the state: one line per change, so that safety costs what changes.

The state file stays the last complete one until the update ends. A run that finds a journal replays it onto that file.
The first line names the state that the journal belongs to by its manifest's time, the last one the state into which it
went; a line cut short is a change that didn't happen yet as far as anybody knows.
"""

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from locallb.engine.errors import StateUnwritable
from locallb.engine.files import Files
from locallb.engine.resource import compact, pending_from_json, resource_from_json
from locallb.engine.snapshot import Begin, Drop, End, Free, Mutation, Put, Supersede
from locallb.engine.values import Value

_FORMAT = 1


class Journal:
    """An open journal; the file is made with the first line."""

    def __init__(self, path: Path, files: Files, base: str) -> None:
        self._path = path
        self._files = files
        self._base = base
        self._descriptor = -1
        self._broken = False

    @property
    def is_empty(self) -> bool:
        """Whether nothing was written."""
        return self._descriptor < 0

    def append(self, mutations: Sequence[Mutation]) -> None:
        """Write changes that belong together, as one line."""
        self._line([encode(mutation) for mutation in mutations])

    def seal(self, time: str) -> None:
        """Name the state into which everything goes."""
        self._line({"saved": time})

    def _line(self, content: Value) -> None:
        text = f"{compact(content)}\n"
        if self._broken:  # the last line may be cut short: nothing may follow it
            raise StateUnwritable(f"{self._path} can't be written any more; make room, then run again")
        if self._descriptor < 0:
            text = f"{compact({'journal': _FORMAT, 'base': self._base})}\n{text}"
            self._descriptor = self._files.open_new(self._path)
        self._broken = True
        self._files.append(self._descriptor, self._path, text)
        self._broken = False

    def close(self) -> None:
        """Stop writing; the file stays."""
        self._broken = True
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def remove(self) -> None:
        """Stop writing and remove the file: everything is in the state."""
        self.close()
        self._files.remove(self._path)


@dataclass(frozen=True)
class Leftover:
    """A journal that a run left behind."""

    base: str
    mutations: tuple[Mutation, ...]
    saved: str = ""

    def belongs_to(self, time: str) -> bool:
        """Tell whether it continues the state of this time."""
        return self.base == time and bool(self.mutations)

    def is_part_of(self, time: str) -> bool:
        """Tell whether the state of this time holds it already."""
        return not self.mutations or (bool(self.saved) and self.saved == time)


def read_journal(path: Path) -> Leftover | None:
    """Read what a run left, None when there is nothing."""
    try:
        lines = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        return None
    entries = list(_parse(lines))
    if not entries or not isinstance(entries[0], dict) or entries[0].get("journal") != _FORMAT:
        return Leftover("", ())
    mutations: list[Mutation] = []
    saved = ""
    for entry in entries[1:]:
        if isinstance(entry, dict):
            saved = str(entry.get("saved", ""))
        elif isinstance(entry, list):
            mutations.extend(decode(item) for item in entry if isinstance(item, dict))
    return Leftover(str(entries[0].get("base")), tuple(mutations), saved)


def seal_leftover(path: Path, files: Files, time: str) -> None:
    """Name the state into which a leftover journal goes, its last line dropped if that was cut short."""
    whole = path.read_bytes().rpartition(b"\n")
    descriptor = files.open_end(path, len(whole[0]) + len(whole[1]))
    try:
        files.append(descriptor, path, f"{compact({'saved': time})}\n")
    finally:
        os.close(descriptor)


def _parse(lines: list[bytes]) -> Iterator[Value]:
    for line in lines[:-1]:  # what follows the last line end was cut short
        yield json.loads(line)


def encode(mutation: Mutation) -> dict[str, Value]:
    """Write a change as JSON."""
    raw: dict[str, Value]
    match mutation:
        case Put(resource):
            raw = {"put": resource.as_json()}
        case Supersede(resource, number):
            raw = {"supersede": resource.as_json(), "number": number}
        case Drop(urn):
            raw = {"drop": urn}
        case Free(number):
            raw = {"free": number}
        case Begin(number, operation):
            raw = {"begin": operation.as_json(), "number": number}
        case End(number):
            raw = {"end": number}
    return raw


def decode(raw: dict[str, Value]) -> Mutation:
    """Read a change."""
    number = raw.get("number", raw.get("free", raw.get("end", 0)))
    count = number if isinstance(number, int) else 0
    word, value = next(iter(raw.items()))
    if isinstance(value, dict):
        return _decode_resource(word, value, count)
    if word == "drop":
        return Drop(str(value))
    return Free(count) if word == "free" else End(count)


def _decode_resource(word: str, value: dict[str, Value], number: int) -> Mutation:
    if word == "begin":
        return Begin(number, pending_from_json(value))
    resource = resource_from_json(value)
    if word == "put":
        return Put(resource)
    return Supersede(resource, number)
