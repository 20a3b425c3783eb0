"""The file backend of one stack: how a run reads and writes state, lock, journal and backups.

Kept in memory between runs and read again when somebody else wrote the file. A run applies changes through a
`Recorder`, which writes them to the journal before anybody relies on them; `save` makes the complete file.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from threading import Lock
from time import time_ns

from locallb.engine.backend.backups import Backups, journal_complaint, restore, state_complaint
from locallb.engine.backend.layout import Layout
from locallb.engine.backend.stack_lock import is_waited_for, locked, waiting
from locallb.engine.state.checkpoint import (
    Checkpoint,
    check_state,
    format_checkpoint,
    read_checkpoint,
    timestamp,
)
from locallb.engine.state.errors import StateBroken, StateUnwritable, unreadable
from locallb.engine.state.files import Files
from locallb.engine.state.journal import Journal, read_journal, replay, salvaged, seal_leftover
from locallb.engine.state.resource import Pending
from locallb.engine.state.stack_state import Begin, Mutation, StackState
from locallb.guarded.reader import unfit

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
        return waiting(self._layout.guard.with_suffix(".waiting"), self._files)

    def is_waited_for(self) -> bool:
        """Return whether a process waits for the lock."""
        return is_waited_for(self._layout.guard.with_suffix(".waiting"))

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
        self._load()
        leftover = read_journal(self._layout.journal)
        if leftover and leftover.belongs_to(self._time()):
            copy = self._snapshot.copy()
            replay(leftover.mutations, copy, self._layout.journal)
            return copy
        return self._snapshot

    def is_unfinished(self) -> bool:
        """Return whether an update left a journal that isn't in the state."""
        leftover = read_journal(self._layout.journal)
        if leftover is None:
            return False
        self._load()
        return not leftover.is_part_of(self._time())

    def stamp(self) -> _Stamp | None:
        """Return which writing of the state file is there now; None if there is none."""
        return self._read_stamp()

    @property
    def read_stamp(self) -> _Stamp | None:
        """The stamp of the state file as it is in memory; None if none is."""
        return self._stamp

    def _time(self) -> str:
        return self._checkpoint.time if self._checkpoint else ""

    def _load(self) -> None:
        stamp = self._read_stamp()
        if self._checkpoint is not None and stamp == self._stamp:
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
        self._stamp = stamp

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
