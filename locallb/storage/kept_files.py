"""Changes a file of the system in one step and keeps all else of it: its owner, its mode, all bytes around the change.

A link or whatever is no regular file is refused, never followed. Not here: files of ours (`files`).
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from locallb.guarded import atomic
from locallb.guarded.reader import opened, read_up_to
from locallb.model.system_errors import refusal
from locallb.storage.files import FilesError

_LARGEST = 8 << 20


def rewrite(path: Path, change: Callable[[str], str]) -> None:
    """Put what `change` makes of a file's text in its place; nothing is written where it is the same.

    A text that isn't UTF-8 comes back as it was. Raises FilesError; then the file is untouched.
    """
    sibling = atomic.temporary_name(path)
    try:
        with opened(path, follow=False) as file:
            before, status = read_up_to(file.fileno(), _LARGEST + 1), os.fstat(file.fileno())
        if len(before) > _LARGEST:
            raise FilesError(f"{path} has more than {_LARGEST >> 20} MiB: nothing is changed")
        after = change(before.decode(errors="surrogateescape")).encode(errors="surrogateescape")
        atomic.remove_abandoned_of(path)
        if after != before:
            _replace(path, sibling, after, status)
    except OSError as error:
        atomic.discard(sibling)
        why = "it is a link" if path.is_symlink() else refusal(error)
        raise FilesError(f"{path} can't be changed: {why}") from error


def _replace(path: Path, sibling: Path, text: bytes, status: os.stat_result) -> None:
    with atomic.new_file(sibling, 0o600) as descriptor:
        atomic.write_all(descriptor, text)
        os.fchown(descriptor, status.st_uid, status.st_gid)
        shutil.copystat(path, sibling, follow_symlinks=False)  # with what SELinux says of it
        os.utime(sibling)
        os.fsync(descriptor)
        sibling.replace(path)  # while it counts as being written
