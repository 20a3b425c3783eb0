"""The file backend of one stack: where its state, lock, journal and backups lie, and how a run reads and writes them.

Kept in memory between runs and read again when somebody else wrote the file. A run applies changes through a
`Recorder`, which writes them to the journal before anybody relies on them; `save` makes the complete file.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock
from time import time_ns

from locallb.engine.checkpoint import Checkpoint, format_checkpoint, parse_checkpoint, timestamp
from locallb.engine.errors import StateBroken, StateUnwritable
from locallb.engine.files import Files
from locallb.engine.journal import Journal, read_journal, seal_leftover
from locallb.engine.locks import locked
from locallb.engine.resource import Pending
from locallb.engine.snapshot import Begin, End, Mutation, Snapshot

BACKUPS_KEPT = 20
Notice = Callable[[str], None]
_Stamp = tuple[int, int, int]


class Recorder:
    """Applies changes to a snapshot, each one first to the journal if there is one (a preview has none)."""

    def __init__(self, snapshot: Snapshot, journal: Journal | None = None) -> None:
        self.snapshot = snapshot
        self._journal = journal
        self._lock = Lock()

    def apply(self, *mutations: Mutation) -> None:
        """Make changes that belong together."""
        with self._lock:
            if self._journal:
                self._journal.append(mutations)
            for mutation in mutations:
                self.snapshot.apply(mutation)

    def begin(self, operation: Pending) -> int:
        """Note that an operation begins; give its number."""
        number = self.number()
        self.apply(Begin(number, operation))
        return number

    def end(self, number: int, *mutations: Mutation) -> None:
        """Note that an operation ended, with what it changed."""
        self.apply(End(number), *mutations)

    def number(self) -> int:
        """Give an unused number."""
        with self._lock:
            return self.snapshot.take_number()


class Store:
    """One stack's files in a backend."""

    def __init__(self, backend: Path, project: str, stack: str, files: Files | None = None) -> None:
        base = backend / ".pulumi"
        self._files = files or Files()
        self._base = base
        self._name = f"organization/{project}/{stack}"
        self.path = base / "stacks" / project / f"{stack}.json"
        self._journal_path = base / "journals" / project / f"{stack}.jsonl"
        self._guard = base / "journals" / project / f"{stack}.lock"
        self._backups = base / "backups" / project / stack
        self._locks = base / "locks" / self._name
        self._checkpoint: Checkpoint | None = None
        self._snapshot = Snapshot()
        self._stamp: _Stamp | None = None

    @contextmanager
    def session(self, notice: Notice) -> Iterator[Recorder]:
        """Hold the lock, settle what an earlier run left, and give the recorder; save at the end, whatever happens."""
        with locked(self._locks, self._guard, self._files, notice):
            self._load()
            self._recover(notice)
            journal = Journal(self._journal_path, self._files, self._time())
            try:
                with self._saving(journal):
                    yield Recorder(self._snapshot, journal)
            finally:
                journal.close()

    @contextmanager
    def _saving(self, journal: Journal) -> Iterator[None]:
        """Save at the end; after a sudden stop (no Exception) leave that to the next run and its journal."""
        try:
            try:
                yield
            except Exception:
                with suppress(StateUnwritable):
                    self._finish(journal)
                raise
            self._finish(journal)
        except BaseException:
            self._stamp = None  # memory may be ahead of the disk: read it again
            raise

    def peek(self) -> Snapshot:
        """Give the current state without lock and without writing; what a broken-off run did is included."""
        self._load()
        leftover = read_journal(self._journal_path)
        if leftover and leftover.belongs_to(self._time()):
            copy = self._snapshot.copy()
            for mutation in leftover.mutations:
                copy.apply(mutation)
            return copy
        return self._snapshot

    def is_unfinished(self) -> bool:
        """Tell whether an update left a journal that isn't in the state."""
        leftover = read_journal(self._journal_path)
        if leftover is None:
            return False
        self._load()
        return not leftover.is_part_of(self._time())

    def stamp(self) -> _Stamp | None:
        """Tell which writing of the state file is there now; None if there is none."""
        return self._read_stamp()

    def _time(self) -> str:
        return self._checkpoint.time if self._checkpoint else ""

    def _load(self) -> None:
        stamp = self._read_stamp()
        if self._checkpoint is not None and stamp == self._stamp:
            return
        compressed = self.path.with_name(f"{self.path.name}.gz")
        if compressed.exists():
            raise StateBroken(f"{compressed} is compressed; unset PULUMI_SELF_MANAGED_STATE_GZIP and run `pulumi up`")
        self._checkpoint = None
        if stamp is None:
            self._checkpoint = Checkpoint(self._name)
        else:
            self._checkpoint = parse_checkpoint(self._read(), self._name, self.path)
        self._snapshot = self._checkpoint.snapshot()
        self._stamp = stamp

    def _read(self) -> str:
        try:
            return self.path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise StateBroken(f"{self.path} can't be read: {error}; see the backups in {self._backups}") from None

    def _read_stamp(self) -> _Stamp | None:
        try:
            found = self.path.stat()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StateBroken(f"{self.path} can't be read: {error.strerror}; set the rights and run again") from None
        return found.st_ino, found.st_mtime_ns, found.st_size

    def _recover(self, notice: Notice) -> None:
        leftover = read_journal(self._journal_path)
        if leftover is None:
            return
        if leftover.belongs_to(self._time()):
            for mutation in leftover.mutations:
                self._snapshot.apply(mutation)
            time = timestamp()
            seal_leftover(self._journal_path, self._files, time)
            self._save(time)
            notice(f"took over what an interrupted update had done ({len(leftover.mutations)} changes)")
        elif not leftover.is_part_of(self._time()):
            aside = self._backups / f"{self.path.stem}.{time_ns()}.journal"
            self._files.link(self._journal_path, aside)
            notice(f"another engine wrote the state after an interrupted update; its journal is kept as {aside}")
        self._files.remove(self._journal_path)

    def _finish(self, journal: Journal) -> None:
        if journal.is_empty:
            return
        time = timestamp()
        journal.seal(time)
        self._save(time)
        journal.remove()

    def _save(self, time: str) -> None:
        checkpoint = self._checkpoint or Checkpoint(self._name)
        pieces = format_checkpoint(checkpoint, self._snapshot, time)
        meta = self._base / "meta.yaml"
        if not meta.exists():
            self._files.replace(meta, [b"version: 1\n"])
        self._back_up()
        self._files.replace(self.path, pieces)
        self._checkpoint = Checkpoint(checkpoint.stack, time, (), (), checkpoint.around, checkpoint.latest)
        self._stamp = self._read_stamp()

    def _back_up(self) -> None:
        if not self.path.exists():
            return
        self._files.link(self.path, self._backups / f"{self.path.stem}.{time_ns()}.json")
        for old in sorted(self._backups.iterdir())[:-BACKUPS_KEPT]:
            with suppress(OSError):
                old.unlink()
