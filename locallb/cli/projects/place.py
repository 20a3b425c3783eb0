"""Finds the project's directory: the named one, or the nearest above it, as Git finds its repository."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from locallb.cli.failures import Refused
from locallb.guarded import owners
from locallb.guarded.owners import Distrust

PROJECT_FILE = "Pulumi.yaml"
PROGRAM_FILE = "__main__.py"


def nearest_project(directory: Path) -> Path:
    """Return the project that `directory` lies in; `directory` where there is none.

    A project is a program that is run: above `directory` only one that no other user can change counts. In `directory`
    itself any counts, to be refused (`trust`) rather than passed over.

    Raises:
        Refused: if the current directory is gone.

    """
    try:
        start = directory.resolve()
    except FileNotFoundError:
        raise Refused(
            "the current directory doesn't exist any more; change to one that does, or name the project with -C DIR"
        ) from None
    if is_project(start):
        return start
    return next((above for above in start.parents if is_trusted(above)), start)


def is_project(directory: Path) -> bool:
    """Return whether a directory has a project's file, whatever that is."""
    return os.path.lexists(directory / PROJECT_FILE)


def is_trusted(directory: Path) -> bool:
    """Return whether there is a project, and no other user can change which program that is."""
    with suppress(OSError):
        return is_project(directory) and fault(directory) is None
    return False


def fault(directory: Path) -> Distrust | None:
    """Return why what a project runs isn't trusted; None where it is. Raises OSError where that can't be determined."""
    parts = (directory / PROJECT_FILE, directory / PROGRAM_FILE)
    return next((found for part in parts if (found := owners.distrust(part, directory))), None)
