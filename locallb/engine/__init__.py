"""An embedded deployment engine for Pulumi programs in Python: no CLI, no plugins, no sockets.

It runs a program in this process, brings providers' resources to what it declares, and keeps the official command
line's state file. It does what a program of this kind needs, exactly as the command line, and refuses the rest by name.
It knows Pulumi's protocol and nothing about what the resources are.
"""

from locallb.engine.deploy.events import (
    Diagnostic,
    DiagnosticEvent,
    Event,
    Op,
    Result,
    Severity,
    StepDone,
    StepFailed,
    StepPlanned,
    StepRecord,
    StepStarted,
    Subject,
)
from locallb.engine.deploy.scope import EVERYTHING, Scope, only
from locallb.engine.engine import Engine
from locallb.engine.protocol.unfinished import refuse_unfinished
from locallb.engine.state.checkpoint import check_state
from locallb.engine.state.errors import (
    Cancelled,
    EngineError,
    FullScopeNeeded,
    LockHeld,
    ProjectError,
    StateBroken,
    StateUnwritable,
    Unsupported,
    UpdateUnfinished,
)
from locallb.engine.state.project import Project, check_stack_name, load_config, load_project, require_stack, state_file
from locallb.engine.state.resource import ResourceState
from locallb.engine.state.store import Store
from locallb.engine.state.urns import name_of, root_urn
from locallb.engine.state.values import UNKNOWN, PropertyChange

__all__ = [
    "EVERYTHING",
    "UNKNOWN",
    "Cancelled",
    "Diagnostic",
    "DiagnosticEvent",
    "Engine",
    "EngineError",
    "Event",
    "FullScopeNeeded",
    "LockHeld",
    "Op",
    "Project",
    "ProjectError",
    "PropertyChange",
    "ResourceState",
    "Result",
    "Scope",
    "Severity",
    "StateBroken",
    "StateUnwritable",
    "StepDone",
    "StepFailed",
    "StepPlanned",
    "StepRecord",
    "StepStarted",
    "Store",
    "Subject",
    "Unsupported",
    "UpdateUnfinished",
    "check_stack_name",
    "check_state",
    "load_config",
    "load_project",
    "name_of",
    "only",
    "refuse_unfinished",
    "require_stack",
    "root_urn",
    "state_file",
]
