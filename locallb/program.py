"""The program of every project of ours: read the stack's Services, plan, declare. For `pulumi up` and for `locallb up`.

A project's `__main__.py` calls `serve`; resources of its own may follow. Not here: who runs the program.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pulumi

from components.stack import declare
from locallb.config.settings import SettingsError
from locallb.engine.monitor import refuse_unfinished
from locallb.engine.state.errors import EngineError
from locallb.engine.state.project import state_file
from locallb.model.errors import ClientError, of_host
from locallb.model.identities import Home
from locallb.observe import ask_each
from locallb.sources import SourceError
from locallb.sources.configuration import program_settings
from locallb.sources.snapshot import SnapshotResult
from locallb.sources.state.stack_home import refuse_renamed, require_here, write
from locallb.sources.workspace import Planned, Workspace


def serve() -> Planned:
    """Read the stack's Services, plan, and declare what serves them; return what was read, and the plan made of it.

    Raises:
        RunError: if nothing can be planned: one sentence.

    """
    _require_engine()
    with _errors_in_one_sentence():
        reading, plan = _open_workspace().read_and_plan(keep=not pulumi.runtime.is_dry_run())
    declare(plan)
    _report(reading)
    return reading, plan


def _require_engine() -> None:
    """Exit where nobody would carry out what is declared."""
    if pulumi.runtime.settings.SETTINGS.monitor is None:
        raise SystemExit("error: this program needs an engine: run `locallb up` or `pulumi up`")


@contextmanager
def _errors_in_one_sentence() -> Iterator[None]:
    """Raise what the user or this host can repair as RunError, of which an engine shows the sentence only."""
    try:
        yield
    except (ClientError, EngineError, SettingsError, SourceError) as error:
        raise pulumi.RunError(str(error)) from None
    except Exception as error:
        if of_host(error):
            raise pulumi.RunError(of_host(error)) from None
        raise


def _open_workspace() -> Workspace:
    """Check that the stack belongs to this directory, then read its configuration."""
    root = Path(pulumi.get_root_directory()).resolve()
    home = Home(pulumi.get_project(), pulumi.get_stack(), str(root))
    state = state_file(root, home.stack)
    refuse_unfinished(root, home.stack)
    refuse_renamed(home, state)
    check_home = require_here if pulumi.runtime.is_dry_run() else write
    check_home(home, state)
    return Workspace(home, program_settings(home), state, observe=ask_each)


def _report(reading: SnapshotResult) -> None:
    """Log what the user should hear of what was read."""
    for notice in reading.notices:
        pulumi.log.warn(notice)
    for complaint in reading.complaints:
        pulumi.log.error(complaint)
