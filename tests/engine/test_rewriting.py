"""A large state file is written over one that nobody needs any more; nobody can tell, but by what it costs."""

import json
import os
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from time import time_ns

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from locallb.engine.backend.backups import NEWEST, Backups
from locallb.engine.backend.rewriting import Rewriter
from locallb.engine.state.checkpoint import Checkpoint, format_checkpoint, parse_checkpoint
from locallb.engine.state.errors import StateUnwritable
from locallb.engine.state.files import Files, beside_of
from locallb.engine.state.joined import JoinedResources
from locallb.engine.state.resource import ResourceState
from locallb.engine.state.slots import FEW, ROOM, Piece, Slots
from locallb.engine.state.snapshot import Drop, Put, Snapshot

SIZE = 64 * (FEW + 3)
CHANGES = st.lists(
    st.tuples(st.integers(0, SIZE - 1), st.sampled_from((0, 1, 300, ROOM - 300, ROOM, 3 * ROOM, 80_000))),
    min_size=1,
    max_size=4,
)


def resource(number: int, size: int) -> ResourceState:
    """Make a resource with as many bytes in it."""
    return ResourceState(f"urn:pulumi:s::p::a:b:C::{number}", "a:b:C", custom=False, inputs={"text": "}" * size})


class CountedFiles(Files):
    """Files that note what is written."""

    def __init__(self, before: Callable[[str], None] = lambda _what: None) -> None:
        super().__init__(before)
        self.written: list[int] = []
        """Bytes of each file."""

    def replace(self, path: Path, pieces: Iterable[bytes | memoryview]) -> None:
        """Note a whole file."""
        whole = list(pieces)
        super().replace(path, whole)
        self.written.append(sum(map(len, whole)))

    def rewrite(self, path: Path, descriptor: int, places: Iterable[tuple[int, bytes]], size: int) -> None:
        """Note what is written of one."""
        some = list(places)
        super().rewrite(path, descriptor, some, size)
        self.written.append(sum(len(data) for _, data in some))


class Stack:
    """A state file that is written again and again, as the store does."""

    def __init__(self, folder: Path, files: Files | None = None, size: int = SIZE) -> None:
        self.state = folder / "dev.json"
        self.counted = files if isinstance(files, CountedFiles) else CountedFiles()
        self.snapshot = Snapshot(resource(number, 100) for number in range(size))
        self.backups = Backups(folder / "backups", "dev", self.counted)
        self._joined, self._rewriter, self._count = JoinedResources(), Rewriter(self.counted), 0

    @property
    def now(self) -> tuple[ResourceState, ...]:
        """All resources, in order."""
        return self.snapshot.in_order()

    def change(self, number: int, size: int) -> None:
        """Change a resource; another writing is another time."""
        self.snapshot.apply(Put(replace(self.now[number], inputs=resource(0, size).inputs)))

    def grow(self, more: int) -> None:
        """Add as many resources, or take away the last ones."""
        for last in self.now[more:] if more < 0 else ():
            self.snapshot.apply(Drop(last.urn))
        for number in range(more):
            self.snapshot.apply(Put(resource(SIZE + number, 9)))

    def write(self) -> None:
        """Write the state."""
        self._count += 1
        pieces = format_checkpoint(Checkpoint("s"), self.snapshot, f"2026-{self._count}", self._joined)
        if self.state.exists():
            self.backups.add(self.state, time_ns(), self._rewriter.spare(self.state))
        self._rewriter.write(self.state, pieces)

    def write_often(self, times: int) -> None:
        """Write it, each time with another resource changed."""
        for number in range(times):
            self.change(number, 100 + number)
            self.write()


@pytest.fixture(name="stack")
def fixture_stack(tmp_path: Path) -> Stack:
    """Make a stack that has written often enough for files that go."""
    stack = Stack(tmp_path)
    stack.write_often(NEWEST + 3)
    return stack


def plain(stack: Stack) -> bytes:
    """Write the same with nothing known: without room, every byte again."""
    time = json.loads(stack.state.read_text())["checkpoint"]["latest"]["manifest"]["time"]
    pieces = format_checkpoint(Checkpoint("s"), Snapshot(stack.now), time)
    return b"".join(piece.data + piece.separator for piece in pieces)


@pytest.fixture(autouse=True, scope="module")
def _unsynced() -> Iterator[None]:
    """Do without the disk: nothing here is about power cuts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _descriptor: None)
        yield


@given(st.lists(CHANGES, min_size=1, max_size=12), st.integers(-100, 100))
@settings(max_examples=25, deadline=None)
def test_a_file_written_over_another_has_what_a_new_one_has(history: list[list[tuple[int, int]]], more: int) -> None:
    """Whatever changed since, came or went; and what is read of it is written again as if there had been no room."""
    with TemporaryDirectory() as folder:
        stack = Stack(Path(folder))
        stack.write_often(NEWEST + 2)
        for changes in history:
            for number, size in changes:
                stack.change(number % len(stack.now), size)
            stack.grow(more)
            more = 0
            stack.write()
            text = stack.state.read_text()
            assert json.loads(text) == json.loads(plain(stack))
            read = parse_checkpoint(text, "s", stack.state)
            assert [resource.data for resource in read.resources] == [resource.data for resource in stack.now]


def test_small_change_rewrites_few_pieces_of_a_large_file(stack: Stack) -> None:
    """Of two files that are written in turns, a few pieces each: those that changed since."""
    stack.counted.written.clear()
    for number in range(20):
        stack.change(7 * 64 + 1, 100 + 2000 * (number % 2))
        stack.write()
    assert max(stack.counted.written) < stack.state.stat().st_size / 4


def test_a_file_of_few_pieces_has_no_room(tmp_path: Path) -> None:
    """It is byte for byte as it was before there was any."""
    stack = Stack(tmp_path, size=64 * (FEW - 2))
    stack.write_often(NEWEST + 3)
    assert stack.state.read_bytes() == plain(stack)


@given(st.lists(st.tuples(st.integers(0, 29), st.integers(0, ROOM // 4)), max_size=20))
def test_slots_follow_one_another_and_small_changes_move_none(history: list[tuple[int, int]]) -> None:
    """A piece that grows by less than its room leaves all others where they are."""
    pieces = [Piece(b"{%d}" % number * 40, 1, b",") for number in range(30)]
    slots = Slots()
    before = slots.of(pieces)
    starts = [slot.start for slot in before]
    for number, size in history:
        pieces[number] = Piece(b"{" + b"x" * size + b"}", 1, b",")
        placed = slots.of(pieces)
        assert [slot.start for slot in placed] == starts
        assert [slot.end for slot in placed[:-1]] == starts[1:]
        assert all(len(b"".join(slot.parts())) == slot.end - slot.start for slot in placed)


def leftover_path(stack: Stack) -> Path:
    """Return the backup that goes with the next writing."""
    return [*stack.backups.newest_first()][-1]


def held_open(path: Path) -> Iterator[None]:
    """Read a backup slowly."""
    with path.open("rb"):
        yield


def held_under_another_name(path: Path) -> Iterator[None]:
    """Keep a copy that costs nothing."""
    path.with_suffix(".mine").hardlink_to(path)
    yield


@pytest.mark.parametrize("holds", [held_open, held_under_another_name])
def test_rewriting_a_file_keeps_it_whole_for_open_readers(
    holds: Callable[[Path], Iterator[None]], stack: Stack
) -> None:
    """Whoever reads a backup that goes meanwhile reads it to its end."""
    path = leftover_path(stack)
    content = path.read_bytes()
    with path.open("rb") as file:
        own = os.dup(file.fileno()) if holds is held_open else -1
    holding = holds(path)
    next(holding)
    stack.counted.written.clear()
    stack.write_often(1)
    assert stack.counted.written == [stack.state.stat().st_size]
    if own >= 0:
        assert os.pread(own, len(content) + 1, 0) == content
        os.close(own)
    else:
        assert path.with_suffix(".mine").read_bytes() == content


@pytest.mark.parametrize("also", ["touched", "longer", "gone"])
def test_a_file_that_isnt_as_it_was_left_isnt_written_over(also: str, stack: Stack) -> None:
    """Of a file that somebody changed nobody knows what it has."""
    path = leftover_path(stack)
    with path.open("r+b") as file:
        if also == "longer":
            file.seek(0, os.SEEK_END)
            file.write(b" ")
        else:
            file.seek(500)
            file.write(b"?")
    if also == "gone":
        path.unlink()
    stack.counted.written.clear()
    stack.write_often(1)
    assert stack.counted.written == [stack.state.stat().st_size]
    assert json.loads(stack.state.read_text()) == json.loads(plain(stack))


def test_directory_or_link_with_a_backups_name_is_not_reused(tmp_path: Path) -> None:
    """As the file to be written next it would make every later save fail."""
    folder = tmp_path / "backups"
    (folder / "dev.1.json").mkdir(parents=True)
    (folder / "dev.2.json").symlink_to(tmp_path / "elsewhere")
    stack = Stack(tmp_path)
    stack.write_often(NEWEST + 3)
    assert json.loads(stack.state.read_text()) == json.loads(plain(stack))
    assert (folder / "dev.1.json").is_dir()
    assert (folder / "dev.2.json").is_symlink()


def test_a_lease_that_is_gone_by_the_end_fails_no_writing(tmp_path: Path) -> None:
    """The kernel breaks it where a writing takes long and another waits: all is written by then."""
    state = tmp_path / "dev.json"
    beside_of(state).write_bytes(b"1234")
    descriptor = os.open(beside_of(state), os.O_RDWR)
    try:
        Files().rewrite(state, descriptor, [(1, b"xy")], 3)
    finally:
        os.close(descriptor)
    assert state.read_bytes() == b"1xy"


@pytest.mark.parametrize("step", ["write dev.json", "rename dev.json"])
def test_a_writing_that_fails_leaves_the_state_and_its_backups(step: str, tmp_path: Path) -> None:
    """And the next one begins anew."""
    doomed: list[str] = []

    def before(what: str) -> None:
        if what in doomed:
            raise OSError(28, "No space left on device")

    stack = Stack(tmp_path, CountedFiles(before))
    stack.write_often(NEWEST + 3)
    content = stack.state.read_bytes()
    doomed.append(step)
    with pytest.raises(StateUnwritable):
        stack.write_often(1)
    assert stack.state.read_bytes() == content
    assert all(json.loads(path.read_text()) for path in stack.backups.newest_first())
    doomed.clear()
    stack.write_often(NEWEST + 3)
    assert json.loads(stack.state.read_text()) == json.loads(plain(stack))
    names = chain(tmp_path.iterdir(), (tmp_path / "backups").iterdir())
    assert not [path for path in names if path.name.endswith(".new")]
