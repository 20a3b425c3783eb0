"""A guard for programs that either engine may run: the official one must not start from an outdated state.

An interrupted update of this engine is in its journal, which the official command line doesn't read: it would create
again what exists already.
"""

from pathlib import Path

from pulumi.runtime.settings import SETTINGS

from locallb.engine.backend.store import Store
from locallb.engine.program.monitor import Monitor
from locallb.engine.state.errors import EngineError, UpdateUnfinished
from locallb.engine.state.project import load_project


def refuse_unfinished(root: Path, stack: str) -> None:
    """Raise UpdateUnfinished where another engine runs the program in `root` after an update of this one broke off.

    This engine itself goes on where it stopped.
    """
    if isinstance(SETTINGS.monitor, Monitor):
        return
    try:
        project = load_project(root)
    except EngineError:  # a backend that this engine doesn't know has no journal of it
        return
    if Store(project.backend, project.name, stack).is_unfinished():
        raise UpdateUnfinished(
            f"an update of {stack} by `locallb` broke off or is under way;"
            " run `locallb up`, which goes on where it stopped, then this again"
        )
