"""The program of every project of ours: read the stack's Services, plan, declare. For `pulumi up` and for `locallb up`.

A project's `__main__.py` calls `serve`; resources of its own may follow. Not here: who runs the program.
"""

from __future__ import annotations

from pathlib import Path

import pulumi

from components.stack import declare
from locallb.config.settings import SettingsError
from locallb.engine.protocol.unfinished import refuse_unfinished
from locallb.engine.state.errors import EngineError
from locallb.engine.state.project import state_file
from locallb.model.errors import ClientError
from locallb.model.identities import Home
from locallb.model.system_errors import of_host
from locallb.sources import SourceError
from locallb.sources.configuration import program_settings
from locallb.sources.state.renamed_project import refuse_renamed
from locallb.sources.state.stack_home import require_here, write
from locallb.sources.workspace import Planned, Workspace


def serve() -> Planned:
    """Declare all that serves this stack's Services; return what was read, and the plan made of it.

    Raises:
        RunError: if nothing can be planned: one sentence.

    """
    if pulumi.runtime.settings.SETTINGS.monitor is None:
        raise SystemExit("error: this program needs an engine: run `locallb up` or `pulumi up`")
    try:
        reading, plan = _planned()
    except (ClientError, EngineError, SettingsError, SourceError) as error:
        raise pulumi.RunError(str(error)) from None
    except Exception as error:
        if of_host(error):
            raise pulumi.RunError(of_host(error)) from None
        raise
    declare(plan)
    for notice in reading.notices:
        pulumi.log.warn(notice)
    for complaint in reading.complaints:
        pulumi.log.error(complaint)
    return reading, plan


def _planned() -> Planned:
    """Check that the stack belongs here, then read and plan."""
    root = Path(pulumi.get_root_directory()).resolve()
    home = Home(pulumi.get_project(), pulumi.get_stack(), str(root))
    state = state_file(root, home.stack)
    preview = pulumi.runtime.is_dry_run()
    refuse_unfinished(root, home.stack)
    check_home = require_here if preview else write
    refuse_renamed(home, state)
    check_home(home, state)
    return Workspace(home, program_settings(), state_file(root, home.stack)).read_and_plan(keep=not preview)
