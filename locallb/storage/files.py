"""Files that are complete or absent: written under a temporary name and renamed.

Here, too: reading in shared directories and removing trees without following links, directories that are lent for a
while, changes of the system's own files, and stamps, by which a changed file is recognized. Not a cache and not a
format: callers give the text.
"""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple, TypeAlias

from locallb import safe_files
from locallb.model.errors import SCARCE, UNTOLD, ClientError, refusal
from locallb.safe_files import opened, read_if_present, read_up_to

Stamp: TypeAlias = tuple[int, int, int, int]
"""Which file this is, with which content."""


def stamp(status: os.stat_result) -> Stamp:
    """Return the values that differ once a file was replaced or changed; the change time can't be set."""
    return status.st_dev, status.st_ino, status.st_size, status.st_ctime_ns


def stamp_of(path: Path) -> Stamp | None:
    """Return the stamp of what stands there, links followed; None where that can't be seen."""
    try:
        return stamp(path.stat())
    except OSError:
        return None


def stamps(directory: Path) -> Mapping[str, Stamp]:
    """Stamp what is in a directory, and in those directly in it, by path; what can't be seen is left out."""
    stamps_by_path: dict[str, Stamp] = {}
    below = [os.fspath(directory)]
    for place in below:
        with suppress(OSError), os.scandir(place) as entries:
            for entry in entries:
                with suppress(OSError):
                    stamps_by_path[entry.path] = stamp(entry.stat(follow_symlinks=False))
                    if place == below[0] and entry.is_dir(follow_symlinks=False):
                        below.append(entry.path)
    return stamps_by_path


_LARGEST = 8 << 20


def rewrite(path: Path, change: Callable[[str], str]) -> None:
    """Replace a file's text by the result of `change`; nothing is written if both are equal.

    Changes a file of the system in one step and keeps all else of it: its owner, its mode, all bytes around the change.
    A link, or anything else that is no regular file, is refused and never followed. A text that isn't UTF-8 is
    preserved. Raises FilesError; then the file is untouched.
    """
    sibling = safe_files.temporary_name(path)
    try:
        with opened(path, follow=False) as file:
            before, status = read_up_to(file.fileno(), _LARGEST + 1), os.fstat(file.fileno())
        if len(before) > _LARGEST:
            raise FilesError(f"{path} has more than {_LARGEST >> 20} MiB: nothing is changed")
        after = change(before.decode(errors="surrogateescape")).encode(errors="surrogateescape")
        safe_files.remove_abandoned_of(path)
        if after != before:
            _replace(path, sibling, after, status)
    except OSError as error:
        safe_files.discard(sibling)
        why = "it is a link" if path.is_symlink() else refusal(error)
        raise FilesError(f"{path} can't be changed: {why}") from error


def _replace(path: Path, sibling: Path, text: bytes, status: os.stat_result) -> None:
    with safe_files.new_file(sibling, 0o600) as descriptor:
        safe_files.write_all(descriptor, text)
        os.fchown(descriptor, status.st_uid, status.st_gid)
        shutil.copystat(path, sibling, follow_symlinks=False)  # with what SELinux says of it
        os.utime(sibling)
        os.fsync(descriptor)
        sibling.replace(path)  # while it counts as being written


@contextmanager
def scratch(what: str) -> Iterator[Path]:
    """Lend a directory for `what`, which is gone afterwards. Raises FilesError for what can't be written there."""
    made = ""
    try:
        with tempfile.TemporaryDirectory(prefix="locallb-") as made:
            yield Path(made)
    except OSError as error:
        if error.filename and made and not str(error.filename).startswith(made):
            raise
        where = f" to {tempfile.tempdir}" if tempfile.tempdir else ""
        remedy = "or name another directory in TMPDIR"
        raise FilesError(f"{what} can't be written{where}: {refusal(error)}; {remedy}") from error


PRIVATE = 0o600
"""Mode of every file that we write for ourselves."""
SHARED = 0o640
"""Mode of a file that a container reads through our group."""
UNFINISHED = safe_files.ENDING
"""Ending of a file that is being written. One that a crash left is neither overwritten nor read."""
LARGEST = 64 << 20
"""Bytes that a file in a shared directory may have at most, unless its reader says less."""
LOCK_TIMEOUT = 30.0
"""Seconds to wait for another writer of a directory, who may be waiting for an Envoy."""
_SAFELY = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
"""How to open what another user may have put there: no link is followed, a FIFO doesn't wait for its writer."""
_PAUSE = 0.002


class FilesError(ClientError):
    """A file can't be written, read or removed: one sentence."""

    @property
    def is_of_host(self) -> bool:
        """Whether the host lacks what it takes, or its disk fails: of the file itself nothing is known."""
        return isinstance(self.__cause__, OSError) and self.__cause__.errno in UNTOLD

    @property
    def is_scarcity(self) -> bool:
        """Whether the host lacks what it takes to read any file."""
        return isinstance(self.__cause__, OSError) and self.__cause__.errno in SCARCE


class SharedFile(NamedTuple):
    """A regular file of a directory in which others may write."""

    text: str
    uid: int
    """Owner's user id."""


def write_sibling(path: Path, text: str, *, mode: int = PRIVATE, durable: bool = False) -> Path:
    """Write `text` to a new file next to `path` and return its path; `durable`: it survives a power cut.

    Raises FilesError; then no file remains.
    """
    with _sibling(path, text, mode, durable=durable) as sibling:
        return sibling


def write(path: Path, text: str, *, mode: int = PRIVATE, durable: bool = False) -> None:
    """Put `text` at `path` in one step: a reader sees the old file or the new one, whole. Raises FilesError."""
    write_all({path: text}, mode=mode, durable=durable)


def write_all(texts: Mapping[Path, str], *, mode: int = PRIVATE, durable: bool = False) -> None:
    """Put each text at its path once all of them are complete beside; where one can't be, every file stays as it was.

    Raises FilesError.
    """
    whole: dict[Path, Path] = {}
    with ExitStack() as stack:
        try:
            for path, text in texts.items():
                whole[path] = stack.enter_context(_sibling(path, text, mode, durable=durable))
            for path, sibling in whole.items():
                sibling.replace(path)
        except (FilesError, OSError) as error:
            for sibling in whole.values():
                safe_files.discard(sibling)
            if isinstance(error, FilesError):
                raise
            raise FilesError(f"{path} can't be replaced: {refusal(error)}") from error


def create(path: Path, text: str) -> None:
    """Make a file that isn't there yet, for users to change: whole, or not at all.

    Raises FilesError, or OSError where it can't even be begun: FileExistsError where it is there.
    """
    file = path.open("x", encoding="utf-8")
    try:
        with file:
            file.write(text)
    except OSError as error:
        safe_files.discard(path)
        raise FilesError(f"{path} can't be written: {refusal(error)}") from error


@contextmanager
def _sibling(path: Path, text: str, mode: int, *, durable: bool) -> Iterator[Path]:
    """Write `text` to a new file, which counts as being written meanwhile. Raises FilesError."""
    with ExitStack() as stack:
        try:
            written = safe_files.written(safe_files.temporary_name(path), text.encode(), mode, durable=durable)
            sibling = stack.enter_context(written)
        except OSError as error:
            raise FilesError(f"{path} can't be written: {refusal(error)}") from error
        yield sibling


def read(path: Path, limit: int = LARGEST) -> str | None:
    """Read a regular file, of which others may have a link; None if there is none. Raises FilesError.

    Bytes that aren't UTF-8 become U+FFFD. A pipe isn't waited for, and no more than `limit` bytes are read.
    """
    try:
        data = read_if_present(path, limit)
        return None if data is None else data.decode(errors="replace")
    except OSError as error:
        raise FilesError(f"{path} can't be read: {refusal(error)}") from error


def find_shared(path: Path, limit: int = LARGEST) -> SharedFile | None:
    """Read a file in a directory that others may write; None if there is none. Raises FilesError.

    This neither follows a link, nor waits, nor reads more than `limit` bytes.
    """
    try:
        with opened(path, follow=False) as file:
            content, uid = read_up_to(file.fileno(), limit + 1), os.fstat(file.fileno()).st_uid
    except FileNotFoundError:
        return None
    except OSError as error:
        why = "it is a link" if error.errno == errno.ELOOP else refusal(error)
        raise FilesError(f"{path} can't be read: {why}") from error
    if len(content) > limit:
        raise FilesError(f"{path} is larger than {limit} bytes")
    return SharedFile(content.decode(errors="replace"), uid)


def read_shared(path: Path, limit: int = LARGEST) -> str | None:
    """Read the text of a file where others may write, as `find_shared` does."""
    file = find_shared(path, limit)
    return None if file is None else file.text


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Keep every other process that asks for it out of `directory` meanwhile.

    Raises FilesError, also if another one keeps it for LOCK_TIMEOUT seconds.
    """
    try:
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise FilesError(f"{directory} can't be locked: {refusal(error)}") from error
    try:
        _wait_for_lock(descriptor, directory)
        yield
    finally:
        os.close(descriptor)


def _wait_for_lock(descriptor: int, directory: Path) -> None:
    deadline = time.monotonic() + LOCK_TIMEOUT
    while not safe_files.try_lock(descriptor):
        if time.monotonic() > deadline:
            raise FilesError(
                f"{directory} has been locked by another process for {LOCK_TIMEOUT:g} s:"
                f" find it with `fuser {directory}`, end it and run again"
            )
        time.sleep(_PAUSE)


def mode(path: Path) -> int:
    """Return the mode of a file; that of a new one where there is none."""
    try:
        return path.stat().st_mode & 0o777
    except OSError:
        return PRIVATE


def set_mode(path: Path, wanted: int) -> None:
    """Set the mode of a file or directory, never what a link points to; one that is gone is fine. Raises FilesError."""
    try:
        descriptor = os.open(path, _SAFELY)
        try:
            if os.fstat(descriptor).st_mode & 0o777 != wanted:
                os.fchmod(descriptor, wanted)
        finally:
            os.close(descriptor)
    except FileNotFoundError:
        return
    except OSError as error:
        raise FilesError(f"the mode of {path} can't be changed: {refusal(error)}") from error


def remove(path: Path) -> None:
    """Remove a file; absent is fine. Raises FilesError."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        if os.path.lexists(path):  # a file system that is read-only says so also of a file that isn't there
            raise FilesError(f"{path} can't be removed: {refusal(error)}") from error


def remove_tree(path: Path, root: Path) -> None:
    """Remove directory `path`, which must lie directly below `root`; absent is fine.

    Links in it are removed, never followed; a link in its place is refused. Raises FilesError.
    """
    if path.parent != root or path.name in {"", ".", ".."}:
        raise FilesError(f"{path} isn't directly below {root}: nothing is removed")
    try:
        shutil.rmtree(path)
    except FileNotFoundError:
        return
    except OSError as error:
        raise FilesError(f"{path} can't be removed: {refusal(error)}") from error
