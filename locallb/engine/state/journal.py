"""What an update did so far, beside the state: one line per change, so that safety costs what changes.

The state file stays the last complete one until the update ends. A run that finds a journal replays it onto that file.
The first line names the state that the journal belongs to by its manifest's time, the last one the state into which it
went; a line cut short is a change that didn't happen yet as far as anybody knows.

A journal can't be applied to a state that another engine wrote since, and mustn't be forgotten: what it made may exist,
what it removed may be listed. So each resource that it left different from that state becomes an operation under way,
to be resolved like any other: made again, which adopts it, or read.
"""

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from locallb import safe_files
from locallb.engine.state.checkpoint import check_resources
from locallb.engine.state.errors import StateBroken, StateUnusable, StateUnwritable, parsing_problem, unreadable
from locallb.engine.state.files import Files
from locallb.engine.state.resource import Pending, ResourceState, compact, pending_from_json, resource_from_json
from locallb.engine.state.stack_state import Begin, Drop, End, Free, Mutation, Put, StackState, Supersede
from locallb.engine.state.urns import is_provider
from locallb.engine.state.values import Value

_FORMAT = 1
_START = b'{"journal":'


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
        return self._descriptor < 0

    def append(self, mutations: Sequence[Mutation]) -> None:
        """Write changes that belong together, as one line."""
        self._line(f"[{','.join(map(encode, mutations))}]")

    def seal(self, time: str) -> None:
        """Name the state into which everything goes."""
        self._line(compact({"saved": time}))

    def _line(self, content: str) -> None:
        text = f"{content}\n"
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


class JournalLeftover(Struct, frozen=True):
    """A journal that a run left behind."""

    base: str
    mutations: tuple[Mutation, ...]
    saved: str = ""

    def belongs_to(self, time: str) -> bool:
        """Return whether it continues the state of this time."""
        return self.base == time and bool(self.mutations)

    def is_part_of(self, time: str) -> bool:
        """Return whether the state of this time holds it already."""
        return not self.mutations or (bool(self.saved) and self.saved == time)


def read_journal(path: Path) -> JournalLeftover | None:
    """Read what a run left, None when there is nothing. Raises StateBroken for what no run writes."""
    try:
        data = safe_files.read_if_present(path, safe_files.STATE)
    except OSError as error:
        raise unreadable(path, error) from None
    if data is None:
        return None
    # What follows the last line end was cut short; after a power cut that may be zeros.
    *lines, rest = data.rstrip(b"\0").split(b"\n")
    if not lines and not rest.startswith(_START[: len(rest)]):
        raise StateUnusable(path, "it doesn't begin like a journal")
    return _read_lines(lines, path)


def _read_lines(lines: Sequence[bytes], path: Path) -> JournalLeftover:
    base, saved = "", ""
    mutations: list[Mutation] = []
    for number, line in enumerate(lines):
        try:
            entry = json.loads(line)
            if number == 0:
                base = _base(entry, path)
            elif isinstance(entry, list):
                mutations.extend([decode(item) for item in entry])
            else:
                saved = str(entry["saved"])
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise StateUnusable(path, f"its line {number + 1} is no journal's ({parsing_problem(error)})") from None
    return JournalLeftover(base, tuple(mutations), saved)


def _base(head: dict[str, Value], path: Path) -> str:
    """Read which state a journal belongs to, from its first line."""
    written = head["journal"]
    if isinstance(written, int) and written > _FORMAT:
        why = f"it has the format {written}, this engine knows {_FORMAT}"
        raise StateBroken(f"{path} can't be used: {why}; use a newer local-lb")
    if written != _FORMAT:
        raise StateUnusable(path, f"it has the format {written!r}, this engine knows {_FORMAT}")
    return str(head["base"])


def seal_leftover(path: Path, files: Files, time: str) -> None:
    """Name the state into which a leftover journal goes, its last line dropped if that was cut short."""
    try:
        whole = safe_files.read(path, safe_files.STATE).rpartition(b"\n")
    except OSError as error:
        raise unreadable(path, error) from None
    descriptor = files.open_end(path, len(whole[0]) + len(whole[1]))
    try:
        files.append(descriptor, path, f"{compact({'saved': time})}\n")
    finally:
        os.close(descriptor)


def encode(mutation: Mutation) -> str:
    """Write a change as JSON in one line, from the bytes that a resource keeps of itself."""
    match mutation:
        case Put(resource):
            text = f'{{"put":{resource.text}}}'
        case Supersede(resource, number):
            text = f'{{"supersede":{resource.text},"number":{number}}}'
        case Drop(urn):
            text = compact({"drop": urn})
        case Free(number):
            text = compact({"free": number})
        case Begin(number, operation):
            text = f'{{"begin":{operation.text},"number":{number}}}'
        case End(number):
            text = compact({"end": number})
    return text


def decode(raw: dict[str, Value]) -> Mutation:
    """Decode a change of the journal. Raises KeyError, TypeError or AttributeError when it is none."""
    word, value = next(iter(raw.items()), ("", None))
    if isinstance(value, dict):
        return _decode_resource(word, value, raw)
    if isinstance(value, str) and word == "drop":
        return Drop(value)
    if word == "free":
        return Free(_number(value))
    return End(_number(raw["end"]))


def _decode_resource(word: str, value: dict[str, Value], raw: dict[str, Value]) -> Mutation:
    if word == "begin":
        return Begin(_number(raw["number"]), pending_from_json(value))
    resource = resource_from_json(value)
    if word == "put":
        return Put(resource)
    if word == "supersede":
        return Supersede(resource, _number(raw["number"]))
    raise KeyError(word)


def _number(value: Value) -> int:
    if not isinstance(value, int):
        raise TypeError(f"{value!r} is no number")
    return value


def replay(mutations: Iterable[Mutation], snapshot: StackState, journal: Path) -> None:
    """Apply a journal's changes to its state. Raises StateUnusable when they don't fit; the snapshot is spoilt then."""
    try:
        for mutation in mutations:
            snapshot.apply(mutation)
        complaint = next(check_resources(snapshot.in_order()), "")
    except (KeyError, StateBroken) as error:
        complaint = str(error)
    if complaint:
        raise StateUnusable(journal, f"it doesn't fit the state, {complaint}")


def salvaged(mutations: Iterable[Mutation], snapshot: StackState) -> Iterator[Pending]:
    """Return an operation for each resource that a journal leaves different from the state."""
    after: dict[str, ResourceState | None] = {}
    begun: dict[int, Pending] = {}
    for mutation in mutations:
        match mutation:
            case Put(resource) | Supersede(resource, _):
                after[resource.urn] = resource
            case Drop(urn):
                after[urn] = None
            case Begin(number, operation):
                begun[number] = operation
            case End(number):
                begun.pop(number, None)
    for urn, then in after.items():
        yield from _operation(snapshot.live.get(urn), then)
    yield from begun.values()


def _operation(now: ResourceState | None, then: ResourceState | None) -> Iterator[Pending]:
    """Compare a resource of the state with what the journal left of it; None is a resource that isn't there."""
    subject = then or now
    if subject is None or not subject.custom or is_provider(subject.type):
        return
    if then is None:
        yield Pending("deleting", subject)
    elif now is None or now.id != then.id:
        yield Pending("creating", replace(then, id="", outputs={}, created="", modified=""))
    elif not now.equals(then):
        yield Pending("updating", replace(then, id="", outputs={}))
