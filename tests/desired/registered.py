"""What the SDK registers of a program: recorded by an engine that makes everything and touches nothing."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextvars import copy_context
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from msgspec import Struct, field

from locallb.engine.core.declared import Goal
from locallb.engine.core.reporting import Reporter
from locallb.engine.monitor import EngineService, Monitor, Registrar, RegistrationReply
from locallb.engine.program_update import Setting, run_program
from locallb.engine.state.urns import make_urn
from locallb.engine.state.values import Properties

OUTPUTS: Mapping[str, Any] = {
    "pid": 4711.0,
    "started": "77",
    "bootstrap": "b00t",
    "directory": "/proxies/p",
    "container": "cafe",
    "waiting": "",
}
"""Outputs that every custom resource gets besides its inputs."""


class Registered(Struct):
    """An engine's decisions, imagined: all is made at once."""

    is_preview: bool
    goals: dict[str, Goal] = field(default_factory=dict)
    """By URN, in the order in which they were registered."""
    outputs: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    """Of components and the stack."""
    project: str = "p"
    stack: str = "s"

    def register(self, goal: Goal) -> RegistrationReply:
        """Note a resource; none may come twice, or before what it needs."""
        urn = make_urn(self.stack, self.project, goal.parent, goal.type, goal.name)
        assert urn not in self.goals
        assert goal.requirements() <= self.goals.keys()
        self.goals[urn] = goal
        return (
            RegistrationReply(urn, id=f"id of {goal.name}", outputs={**goal.inputs, **OUTPUTS})
            if goal.custom
            else RegistrationReply(urn)
        )

    def register_outputs(self, urn: str, outputs: Properties) -> None:
        self.outputs[urn] = plain(outputs)


def registered(program: Callable[[], object], *, preview: bool) -> Registered:
    """Run a program; give what it registered."""
    made = Registered(preview)
    monitor = Monitor(cast("Registrar", made))
    service = EngineService(cast("Reporter", SimpleNamespace(log=lambda *_: None)))
    setting = Setting("p", "s", Path("/project"), {}, preview)
    failure = copy_context().run(run_program, program, setting, monitor, service)
    assert failure is None, failure.debug
    assert not monitor.errors
    return made


def plain(properties: Mapping[str, Any]) -> Any:  # noqa: ANN401 - JSON
    return json.loads(json.dumps(properties, default=dict))
