"""Stamps of files, by which a change of a file or its content is recognised. Not here: who looks, and when."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

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
