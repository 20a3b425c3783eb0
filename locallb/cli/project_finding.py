"""Finds the project's directory, and refuses a project that other users control.

The directory is the named one, or the nearest above it, as Git finds its repository. A project may be used if only
trusted users control its code and settings, or if the caller named it by `-C`. This decides for everything in a
project: its file, program, components, stacks and state. Modules that the program imports, and kubeconfigs with a
command, are checked where they are used.

Not here: the rules of trust (`safe_files`), and the choice between this project and the user's own
(`new_project`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from locallb import safe_files
from locallb.cli.arguments import Arguments
from locallb.cli.failures import Refused
from locallb.engine.state.errors import EngineError
from locallb.engine.state.project import load_project
from locallb.model.errors import reported
from locallb.model.identities import Home
from locallb.safe_files import Distrust
from locallb.storage.paths import CONSENTS, REFUSALS, stack_directory

PROJECT_FILE = "Pulumi.yaml"
PROGRAM_FILE = "__main__.py"


def nearest_project(directory: Path) -> Path:
    """Return the project that `directory` lies in; `directory` where there is none.

    A project is a program that is run: above `directory` only one that no other user can change counts. In `directory`
    itself any counts, to be refused (`require_trusted`) rather than passed over.

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
    return next((found for part in parts if (found := safe_files.distrust(part, directory))), None)


def require_trusted(directory: Path, args: Arguments) -> None:
    """Check everything of a project that decides what is done, unless `-C` names it. Raises Refused."""
    if args.named and args.directory.resolve() == directory:
        safe_files.accept(directory)
        return
    try:
        fault = _first_fault(directory, args.stack)
    except OSError as error:
        raise Refused(f"to whom {directory} belongs can't be determined: {reported(error)}") from None
    if fault:
        why = "nothing of this project was run"
        remedy = f"{fault.remedy}, or if you trust them" if fault.remedy else "if you trust that user"
        terms = f"{args.command} {args.action}".strip()
        raise Refused(f"{fault}: {why}; {remedy}, name it on purpose: `locallb -C {directory} {terms}`")


def _first_fault(directory: Path, stack: str) -> Distrust | None:
    """Return what can't be trusted of a project: rather an owner than a mode, as the owner is the one to know."""
    found = (safe_files.distrust(part, base) for base, part in _parts(directory, stack))
    return min(filter(None, found), key=lambda fault: bool(fault.mode), default=None)


def _parts(directory: Path, stack: str) -> Iterator[tuple[Path, Path]]:
    """Yield files and directories of a project, each with the directory in which only trusted users may write."""
    yield directory, directory / PROJECT_FILE
    try:
        project = load_project(directory)
    except EngineError:  # the command that needs it reports that, and runs nothing
        return
    yield project.main, project.main / PROGRAM_FILE
    yield project.main, project.main / "components"
    yield project.stack_config_dir, project.stack_file(stack)
    state = project.state_file(stack)
    yield project.backend, state
    yield project.backend, project.backend / ".pulumi" / "journals" / project.name / f"{stack}.jsonl"
    yield project.backend, project.backend / ".pulumi" / "locks" / "organization" / project.name / stack
    yield project.backend, project.backend / ".pulumi" / "backups" / project.name / stack
    retained = stack_directory(Home(project.name, stack, str(directory)))
    yield directory, retained
    yield from ((directory, retained / name) for name in (CONSENTS, REFUSALS))
