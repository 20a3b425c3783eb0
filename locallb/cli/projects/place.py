"""Finds the project's directory: the named one, or the nearest above it, as Git finds its repository."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from locallb.cli.failures import Refused

PROJECT_FILE = "Pulumi.yaml"
PROGRAM_FILE = "__main__.py"


def nearest_project(directory: Path) -> Path:
    """Return the project that `directory` lies in; `directory` where there is none.

    A project is a program that is run: above `directory` only one of this user, or of root, counts.

    Raises:
        Refused: if the current directory is gone.

    """
    try:
        start = directory.resolve()
    except FileNotFoundError:
        raise Refused(
            "the current directory doesn't exist any more; change to one that does, or name the project with -C DIR"
        ) from None
    if (start / PROJECT_FILE).exists():
        return start
    return next((above for above in start.parents if is_trusted(above)), start)


def is_trusted(project: Path) -> bool:
    """Return whether a project exists there and belongs to the user who runs this, also by sudo."""
    return (project / PROJECT_FILE).exists() and is_ours(project)


def is_ours(directory: Path) -> bool:
    """Return whether a directory, and its files that decide what is run, belong to the user who runs this."""
    trusted = {0, os.geteuid()}
    if os.geteuid() == 0 and os.environ.get("SUDO_UID", "").isdecimal():
        trusted.add(int(os.environ["SUDO_UID"]))
    deciding = [path for path in (directory / PROJECT_FILE, directory / PROGRAM_FILE) if os.path.lexists(path)]
    with suppress(OSError):
        # A link is whose it is: anybody may make one to a file of root's.
        return {directory.stat().st_uid, *(path.lstat().st_uid for path in deciding)} <= trusted
    return False
