"""Whether a project may be used: only trusted users control its code and settings, or the caller named it.

This decides for everything in a project: its file, program, components, stacks and state. Modules that the program
imports, and kubeconfigs with a command, are checked where they are used. Not here: what trust is (`owners`).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from locallb.cli.arguments import Arguments
from locallb.cli.failures import Refused
from locallb.cli.projects.place import PROGRAM_FILE, PROJECT_FILE
from locallb.engine.state.errors import EngineError
from locallb.engine.state.project import load_project
from locallb.guarded import owners
from locallb.guarded.owners import Distrust
from locallb.model.identities import Home
from locallb.model.system_errors import reported
from locallb.storage.paths import CONSENTS, REFUSALS, stack_directory


def require_trusted(directory: Path, args: Arguments) -> None:
    """Check everything of a project that decides what is done, unless `-C` names it. Raises Refused."""
    if args.named and args.directory.resolve() == directory:
        owners.accept(directory)
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
    found = (owners.distrust(part, base) for base, part in _parts(directory, stack))
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
