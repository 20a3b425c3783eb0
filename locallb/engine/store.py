"""The file backend of one stack: where its files are, how a run reads and writes them, and their backups.

What was read stays in memory between runs, and is read again when another process wrote the file. A run applies changes
through a `Recorder`, which writes them to the journal before anything relies on them; `save` makes the complete file.

Backups are of before each update, thinned by age, so that they reach back days, whatever the pace of updates. What a
run or a restoration put aside (journals, broken states) has other endings and is never removed here. What was made
since a backup still exists: providers adopt it in the next update, as after any interruption. Not here:
the stack's lock (`stack_lock`), and the content of the files (`state`).
"""

import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import cached_property
from pathlib import Path
from threading import Lock
from time import time_ns

from msgspec import Struct

from locallb.engine.stack_lock import is_waited_for, locked, waiting
from locallb.engine.state.checkpoint import Checkpoint, check_state, format_checkpoint, read_checkpoint, timestamp
from locallb.engine.state.errors import (
    EngineError,
    StateBroken,
    StateUnreadable,
    StateUnusable,
    StateUnwritable,
    unreadable,
)
from locallb.engine.state.files import Files
from locallb.engine.state.journal import Journal, read_journal, replay, salvaged, seal_leftover
from locallb.engine.state.resource import Pending
from locallb.engine.state.stack_state import Begin, Mutation, StackState
from locallb.safe_files import unfit


class Layout(Struct, frozen=True, dict=True):
    """The places of one stack's files in `backend`, the folder that holds `.pulumi`; each is made once."""

    backend: Path
    project: str
    stack: str

    @cached_property
    def name(self) -> str:
        return f"organization/{self.project}/{self.stack}"

    @cached_property
    def state(self) -> Path:
        return self._base / "stacks" / self.project / f"{self.stack}.json"

    @cached_property
    def meta(self) -> Path:
        return self._base / "meta.yaml"

    @cached_property
    def journal(self) -> Path:
        """The journal of the update under way."""
        return self._base / "journals" / self.project / f"{self.stack}.jsonl"

    @cached_property
    def guard(self) -> Path:
        """The file of the operating system's lock."""
        return self._base / "journals" / self.project / f"{self.stack}.lock"

    @property
    def waiting(self) -> Path:
        """The file that a process locks which waits for that lock."""
        return self.guard.with_suffix(".waiting")

    @cached_property
    def backups(self) -> Path:
        """The folder of the backups."""
        return self._base / "backups" / self.project / self.stack

    @cached_property
    def locks(self) -> Path:
        """The folder of the official command line's locks."""
        return self._base / "locks" / self.name

    @property
    def all(self) -> tuple[Path, ...]:
        """Every file and folder of the stack, what the official command line wrote included; its locks are the last."""
        names = (f"{self.stack}.json.bak", f".{self.stack}.json.new")
        siblings = (self.state.with_name(name) for name in names)
        history = self._base / "history" / self.project / self.stack
        return self.backups, history, *siblings, self.journal, self.state, self.waiting, self.locks, self.guard

    @cached_property
    def _base(self) -> Path:
        return self.backend / ".pulumi"


_READINGS = 5
"""Attempts to read a state and its journal while another process writes both."""

Notice = Callable[[str], None]
_Stamp = tuple[int, int, int]


class Recorder:
    """Applies changes to a snapshot, each one first to the journal if there is one (a preview has none).

    `save` writes the state file and gives the journal of what comes after it.
    """

    def __init__(
        self, snapshot: StackState, journal: Journal | None = None, save: Callable[[Journal], Journal] | None = None
    ) -> None:
        self.snapshot = snapshot
        self._journal = journal
        self._save = save
        self._lock = Lock()

    def apply(self, *mutations: Mutation) -> None:
        """Apply changes that belong together."""
        with self._lock:
            if self._journal:
                self._journal.append(mutations)
            for mutation in mutations:
                self.snapshot.apply(mutation)

    def begin(self, operation: Pending) -> int:
        """Note that an operation begins; give its number."""
        number = self.snapshot.take_number()
        self.apply(Begin(number, operation))
        return number

    def save(self) -> None:
        """Write the state file now, what is under way included; its operations and old instances get other numbers."""
        with self._lock:
            if self._journal and self._save:
                self._journal = self._save(self._journal)


class Store:
    """One stack's files in a backend."""

    def __init__(self, backend: Path, project: str, stack: str, files: Files | None = None) -> None:
        self._layout = Layout(backend, project, stack)
        self._files = files or Files()
        self._backups = Backups(self._layout.backups, stack, self._files)
        self._checkpoint: Checkpoint | None = None
        self._snapshot = StackState()
        self._stamp: _Stamp | None = None
        self._loaded: _Stamp | None = None
        """The stamp of the state file as it was read last, by which what was applied since is counted."""
        self._is_ours = False
        """Whether a session of ours goes on: memory is ahead of the file."""
        self.readings = 0
        """How often the file was read: once, and again whenever another process had written it."""

    @contextmanager
    def session(self, notice: Notice) -> Iterator[Recorder]:
        """Hold the lock, settle what an earlier run left, and give the recorder; save at the end, whatever happens."""
        with self.alone(notice):
            self._load()
            self._recover(notice)
            journals = [Journal(self._layout.journal, self._files, self._time())]

            def save(journal: Journal) -> Journal:
                if not journal.is_empty:
                    self._finish(journal)
                    journals.append(Journal(self._layout.journal, self._files, self._time()))
                return journals[-1]

            try:
                self._is_ours = True
                with self._saving(journals):
                    yield Recorder(self._snapshot, journals[-1], save)
            finally:
                self._is_ours = False
                journals[-1].close()

    @contextmanager
    def alone(self, notice: Notice) -> Iterator[None]:
        """Hold the lock, so that no other process changes the stack meanwhile. Raises LockHeld."""
        with locked(self._layout.locks, self._layout.guard, self._files, notice):
            yield

    def waiting(self) -> AbstractContextManager[None]:
        """Show that this process waits for the lock: who takes it again and again lets this one have it."""
        return waiting(self._layout.waiting, self._files)

    def is_waited_for(self) -> bool:
        """Return whether a process waits for the lock."""
        return is_waited_for(self._layout.waiting)

    @property
    def places(self) -> tuple[Path, ...]:
        """Every file and folder that the stack has in the backend, its locks last."""
        return self._layout.all

    def complaints(self) -> tuple[str, ...]:
        """Return a sentence for each rule that the state breaks, and for each fault of the journal."""
        return *check_state(self._layout.state), *journal_complaint(self._layout)

    def unusable(self) -> tuple[str, ...]:
        """Return what of state and journal can't be used, and `restore` would put aside."""
        return *state_complaint(self._layout), *journal_complaint(self._layout)

    def restore(self, notice: Notice) -> None:
        """Put aside what can't be used of journal and state, and bring back the newest backup that can."""
        with self.alone(notice):
            restore(self._layout, self._backups, notice)

    @contextmanager
    def _saving(self, journals: Sequence[Journal]) -> Iterator[None]:
        """Save what the last journal has; after a sudden stop (no Exception) leave that to the next run."""
        try:
            try:
                yield
            except Exception:
                with suppress(StateUnwritable):
                    self._finish(journals[-1])
                raise
            self._finish(journals[-1])
        except BaseException:
            self._stamp = None  # memory may be ahead of the disk: read it again
            raise

    def peek(self) -> StackState:
        """Return the current state without lock and without writing; what a broken-off run did is included."""
        if self._is_ours:
            return self._snapshot
        for _ in range(_READINGS):
            self._load()
            leftover = read_journal(self._layout.journal)
            if self._read_stamp() == self._stamp:
                break  # otherwise the journal may have gone into a state that wasn't read
        if leftover and leftover.belongs_to(self._time()):
            copy = self._snapshot.copy()
            replay(leftover.mutations, copy, self._layout.journal)
            return copy
        return self._snapshot

    def is_unfinished(self) -> bool:
        """Return whether a session of ours goes on, or an update left a journal that isn't in the state."""
        if self._is_ours:
            return True
        leftover = read_journal(self._layout.journal)
        if leftover is None:
            return False
        self._load()
        return not leftover.is_part_of(self._time())

    def stamp(self) -> object:
        """Return a stamp of what the state says now: another one after a change of ours, and after others' writing."""
        written = self._stamp if self._is_ours else self._read_stamp()
        return (self._loaded, self._snapshot.changes) if self._is_known(written) else (written, 0)

    @property
    def read_stamp(self) -> _Stamp | None:
        """The stamp of the state file as it is in memory; None if none is."""
        return self._stamp

    def _time(self) -> str:
        return self._checkpoint.time if self._checkpoint else ""

    def _load(self) -> None:
        stamp = self._read_stamp()
        if self._is_known(stamp):
            return
        path = self._layout.state
        compressed = path.with_name(f"{path.name}.gz")
        if compressed.exists():
            raise StateBroken(f"{compressed} is compressed; unset PULUMI_SELF_MANAGED_STATE_GZIP and run `pulumi up`")
        self.readings += 1
        self._checkpoint = None
        if stamp is None:
            self._checkpoint = Checkpoint(self._layout.name)
        else:
            self._checkpoint = read_checkpoint(path, self._layout.name)
        self._snapshot = self._checkpoint.snapshot()
        self._stamp = self._loaded = stamp

    def _is_known(self, written: _Stamp | None) -> bool:
        """Return whether this writing of the state file is what memory has, or was made from."""
        return self._checkpoint is not None and written == self._stamp

    def _read_stamp(self) -> _Stamp | None:
        path = self._layout.state
        try:
            status = path.stat()
        except FileNotFoundError:
            if path.is_symlink():
                raise unreadable(path, unfit(path, "it is a link that leads nowhere")) from None
            return None
        except OSError as error:
            raise unreadable(path, error) from None
        return status.st_ino, status.st_mtime_ns, status.st_size

    def _recover(self, notice: Notice) -> None:
        """Take over what an earlier run noted and didn't save."""
        path = self._layout.journal
        leftover = read_journal(path)
        if leftover is None:
            return
        if leftover.belongs_to(self._time()):
            self._stamp = None  # until all of it fits
            replay(leftover.mutations, self._snapshot, path)
            self._save_leftover()
            notice(f"took over what an interrupted update had done ({len(leftover.mutations)} changes)")
        elif not leftover.is_part_of(self._time()):
            aside = self._layout.backups / f"{self._layout.stack}.{time_ns()}.journal"
            self._files.link(path, aside)
            for operation in salvaged(leftover.mutations, self._snapshot):
                self._snapshot.apply(Begin(self._snapshot.take_number(), operation))
            self._save_leftover()
            notice(
                "the state was written again after an update of this engine broke off; what that had done is looked at"
                f" again, its journal is kept as {aside}"
            )
        self._files.remove(path)

    def _save_leftover(self) -> None:
        time = timestamp()
        seal_leftover(self._layout.journal, self._files, time)
        self._save(time)

    def _finish(self, journal: Journal) -> None:
        if journal.is_empty:
            return
        time = timestamp()
        journal.seal(time)
        self._save(time)
        journal.remove()

    def _save(self, time: str) -> None:
        checkpoint = self._checkpoint or Checkpoint(self._layout.name)
        data = format_checkpoint(checkpoint, self._snapshot, time)
        if not self._layout.meta.exists():
            self._files.replace(self._layout.meta, b"version: 1\n")
        if self._layout.state.exists():
            self._backups.add(self._layout.state, time_ns())
        self._files.replace(self._layout.state, data)
        self._snapshot.renumber()
        self._checkpoint = Checkpoint(checkpoint.stack, time, (), (), checkpoint.around, checkpoint.latest)
        self._stamp = self._read_stamp()


_SECOND = 1_000_000_000
NEWEST = 5
"""Backups that are kept whatever their age."""
_SPACING = ((3600 * _SECOND, 12), (86400 * _SECOND, 14))
"""Spans of time, and of how many of each the last backup is kept."""


def retained(times: Iterable[int], now: int) -> frozenset[int]:
    """Return which backups to keep, of those made at `times` (nanoseconds): the newest, one per hour, one per day."""
    ordered = sorted(times)
    wanted = set(ordered[-NEWEST:])
    for span, count in _SPACING:
        last_of = {time // span: time for time in ordered}
        wanted.update(time for number, time in last_of.items() if number > now // span - count)
    return frozenset(wanted)


class Backups(Struct, frozen=True):
    """The backups of one stack: `<stack>.<nanoseconds>.json` in a folder, as the official command line names them."""

    folder: Path
    stack: str
    files: Files

    def add(self, state: Path, now: int) -> None:
        """Keep the state as it is, and remove backups that are no longer needed; what is no file stays."""
        self.files.link(state, self.folder / f"{self.stack}.{now}.json")
        times = {time: path for time, path in self._times() if _is_regular(path)}
        for time in times.keys() - retained(times, now):
            with suppress(OSError):
                times[time].unlink()

    def put_aside(self, path: Path, ending: str, now: int) -> Path:
        """Move a file, or whatever stands in its place, here for good; return where it is now."""
        aside = self.folder / f"{self.stack}.{now}.{ending}"
        self.files.move(path, aside)
        return aside

    def newest_first(self) -> Iterator[Path]:
        for _, path in sorted(self._times(), reverse=True):
            yield path

    def _times(self) -> Iterator[tuple[int, Path]]:
        form = re.compile(rf"{re.escape(self.stack)}\.(\d{{1,19}})\.json")
        for path in self.folder.iterdir() if self.folder.is_dir() else ():
            if name := form.fullmatch(path.name):
                yield int(name[1]), path


def journal_complaint(layout: Layout) -> tuple[str, ...]:
    """Return why the journal can't be used; empty if it can, or isn't there."""

    def read() -> None:
        leftover = read_journal(layout.journal)
        state = None if state_complaint(layout) else _state(layout)
        if leftover and state and leftover.belongs_to(state.time):
            replay(leftover.mutations, state.snapshot(), layout.journal)

    return _complaint(read)


def state_complaint(layout: Layout) -> tuple[str, ...]:
    """Return why the state can't be used; empty if it can, or isn't there."""
    return _complaint(lambda: _state(layout))


def restore(layout: Layout, backups: Backups, notice: Callable[[str], None]) -> None:
    """Put aside what can't be used, and bring back the newest backup that can. Raises StateBroken if none can."""
    if journal_complaint(layout):
        aside = backups.put_aside(layout.journal, "journal", time_ns())
        notice(f"put the journal that can't be read aside as {aside}")
    if state_complaint(layout):
        good = _newest_good(layout, backups)
        aside = backups.put_aside(layout.state, "broken", time_ns())
        backups.files.link(good, layout.state)
        notice(f"brought back {good}; the state that can't be read is kept as {aside}")


def _state(layout: Layout) -> Checkpoint:
    return read_checkpoint(layout.state, layout.name) if os.path.lexists(layout.state) else Checkpoint(layout.name)


def _newest_good(layout: Layout, backups: Backups) -> Path:
    """Return the newest backup that can be used.

    Raises StateUnreadable for one that the host keeps us from reading: it may be good, and nobody gets an older one
    instead of it.
    """
    for path in backups.newest_first():
        try:
            read_checkpoint(path, layout.name)
        except StateUnreadable:
            raise
        except EngineError:
            continue
        return path
    raise StateBroken(
        f"no backup in {layout.backups} can be used; move {layout.state} away and run `locallb up`, which adopts what"
        " is there"
    )


def _complaint(read: Callable[[], object]) -> tuple[str, ...]:
    try:
        read()
    except StateUnusable as error:
        return (str(error),)
    return ()


def _is_regular(path: Path) -> bool:
    with suppress(OSError):
        return stat.S_ISREG(path.lstat().st_mode)
    return False
