"""The engine's only way to the disk: whole files replaced at once, lines appended, links for backups.

Every write passes one hook, so that tests can stop the world at each of them. Errors of the disk become one sentence.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from locallb import safe_files
from locallb.engine.state.errors import StateUnwritable, unwritable

_FILE, _FOLDER = 0o600, 0o700  # whoever can write a state decides what the next run does


def _nothing(_what: str) -> None:
    """Let every write happen."""


# Called with the name of each write just before it happens.
BeforeWrite = Callable[[str], None]


class Files:
    """Writes below the backend's directory; `before_write` is called before each of them."""

    def __init__(self, before_write: BeforeWrite = _nothing) -> None:
        self._before = before_write

    @contextmanager
    def _writing(self, what: str, path: Path) -> Iterator[None]:
        try:
            self._before(what)
            yield
        except OSError as error:
            raise unwritable(path, error) from error

    def replace(self, path: Path, data: bytes) -> None:
        """Set a file's whole content, or leave it as it was; what is there now survives a power cut."""
        self.make_folder(path.parent)
        temporary = path.with_name(f".{path.name}.new")  # one writer at a time, as the stack is locked
        self._put("write", path, data, temporary, durable=True)
        with self._writing(f"sync {path.name}", path):
            safe_files.sync_folder(path.parent)

    def create(self, path: Path, text: str, temporary: Path) -> None:
        """Create a small file, complete at once; it is written as `temporary` first."""
        self.make_folder(path.parent)
        self._put("create", path, text.encode(), temporary)

    def _put(self, step: str, path: Path, data: bytes, temporary: Path, *, durable: bool = False) -> None:
        with ExitStack() as stack:
            with self._writing(f"{step} {path.name}", path):
                temporary.unlink(missing_ok=True)  # of a writer that was killed
                stack.enter_context(safe_files.written(temporary, data, _FILE, durable=durable))
            try:
                with self._writing(f"rename {path.name}", path):
                    temporary.replace(path)
            except StateUnwritable:
                safe_files.discard(temporary)
                raise

    def append(self, descriptor: int, path: Path, text: str) -> None:
        """Add to an open file in one write."""
        with self._writing(f"append to {path.name}", path):
            safe_files.write_all(descriptor, text.encode())

    def open_new(self, path: Path) -> int:
        """Open an empty file for appending."""
        self.make_folder(path.parent)
        with self._writing(f"create {path.name}", path):
            descriptor = safe_files.open_to_write(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, _FILE)
            os.fchmod(descriptor, _FILE)
            return descriptor

    def open_end(self, path: Path, length: int) -> int:
        """Open a file for appending after its first `length` bytes."""
        with self._writing(f"shorten {path.name}", path):
            descriptor = safe_files.open_to_write(path, os.O_WRONLY | os.O_APPEND)
            try:
                os.truncate(descriptor, length)
            except OSError:
                os.close(descriptor)
                raise
            return descriptor

    def remove(self, path: Path) -> None:
        with self._writing(f"remove {path.name}", path):
            path.unlink(missing_ok=True)

    def link(self, path: Path, to: Path) -> None:
        """Link a file under a second name, replacing what had it: a free copy, because files are never changed."""
        self.make_folder(to.parent)
        sibling = to.with_name(f".{to.name}.new")
        with self._writing(f"link {to.name}", to):
            sibling.unlink(missing_ok=True)
            sibling.hardlink_to(path)
            sibling.replace(to)

    def move(self, path: Path, to: Path) -> None:
        """Rename a file, or whatever is in its place."""
        self.make_folder(to.parent)
        with self._writing(f"move {path.name}", to):
            path.rename(to)

    def make_folder(self, path: Path) -> None:
        """Make a directory and those above."""
        if not path.is_dir():
            with self._writing(f"make {path.name}", path):
                _make_folders(path)


def _make_folders(path: Path) -> None:
    """Make what is missing on the way, each closed to others and open to us, whatever the umask."""
    if not path.is_dir():
        _make_folders(path.parent)
        path.mkdir(_FOLDER, exist_ok=True)
        path.chmod(_FOLDER)
