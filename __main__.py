"""The program: read the stack's Services, plan, declare. The same for `pulumi up` and for `locallb up`."""

from pathlib import Path

import pulumi

from components.stack import declare
from locallb.config.settings import SettingsError
from locallb.engine.protocol.unfinished import refuse_unfinished
from locallb.engine.state.errors import EngineError
from locallb.engine.state.project import state_file
from locallb.model.errors import ClientError
from locallb.model.identities import Home
from locallb.sources import SourceError
from locallb.sources.configuration import program_settings
from locallb.sources.renamed_project import refuse_renamed
from locallb.sources.stack_home import require_here, write
from locallb.sources.workspace import Workspace

if pulumi.runtime.settings.SETTINGS.monitor is None:
    raise SystemExit("error: nobody runs this program: `.venv/bin/locallb up` does, or `pulumi up`")
root = Path(pulumi.get_root_directory()).resolve()
home = Home(pulumi.get_project(), pulumi.get_stack(), str(root))
try:
    refuse_unfinished(root, home.stack)
    check_home = require_here if pulumi.runtime.is_dry_run() else write
    refuse_renamed(home, state_file(root, home.stack))
    check_home(home, state_file(root, home.stack))
    workspace = Workspace(home, program_settings(), state_file(root, home.stack))
    reading, plan = workspace.read_and_plan(keep=not pulumi.runtime.is_dry_run())
except (ClientError, EngineError, SettingsError, SourceError) as error:
    raise pulumi.RunError(str(error)) from None
declare(plan)
for notice in reading.notices:
    pulumi.log.warn(notice)
for complaint in reading.complaints:
    pulumi.log.error(complaint)
