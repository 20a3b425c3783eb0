"""Log rotation for proxies: a file that has grown is cut, and only its end is kept.

A writer that appends goes on at the beginning of a file that was cut. Envoy must write the file itself for that: its
standard error says nothing any more once it met the limit of its file's size. Not here: that limit (`processes`).
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

from locallb.storage import files

NAME, PREVIOUS = "envoy.log", "envoy.log.previous"
ARGUMENTS = ("--log-path", NAME, "--file-flush-interval-msec", "1000")
"""What makes an Envoy write it."""
NOISE = r"\]\[backtrace\]|stacktrace for envoy bug|#\d+: |UNKNOWN \["
"""Lines of it that tell a user nothing."""
FULL = 1 << 19
"""Bytes from which a log is cut, half of what its writer may write."""
RETAINED = 1 << 18
"""Bytes of its end that are put aside."""
_FLAGS = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def cut(directory: Path) -> bool:
    """Cut the log of the proxy in `directory` if it has grown; tell whether that was done."""
    try:
        descriptor = os.open(directory / NAME, _FLAGS)
    except OSError:  # none, or a link
        return False
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_size < FULL:
            return False
        end = os.pread(descriptor, RETAINED, status.st_size - RETAINED)
        with suppress(files.FilesError):  # the disk is full: then above all the log must shrink
            files.write(directory / PREVIOUS, end.partition(b"\n")[2].decode(errors="replace"))
        os.ftruncate(descriptor, 0)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True


def cut_all(root: Path) -> None:
    """Cut what has grown below a directory of proxies."""
    with suppress(OSError), os.scandir(root) as entries:
        for entry in entries:
            cut(Path(entry.path))
