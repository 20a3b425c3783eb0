"""An index of the resources that a program has registered, which grows as long as the program runs."""

from collections.abc import Mapping

from locallb.engine.core.wanted import Live, Wanted
from locallb.engine.deploy.goal import Goal
from locallb.engine.state.errors import EngineError, StepError
from locallb.engine.state.urns import make_urn, split_reference
from locallb.engine.state.values import Properties, Value, has_unknown


class Goals(Wanted):
    """The registered resources by URN, in place of groups; nothing is known of the others until it is complete."""

    def __init__(self, project: str, stack: str, *, is_preview: bool) -> None:
        super().__init__(project, stack, {}, is_preview=is_preview)
        self.is_complete = False
        self._goals: dict[str, Goal] = {}
        self._outputs: dict[str, dict[str, Value]] = {}

    def add(self, goal: Goal) -> str:
        """Desire one more resource; give its URN. Raises EngineError."""
        urn = make_urn(self._stack, self._project, goal.parent, goal.type, goal.name)
        if urn in self._goals:
            raise EngineError(f"Duplicate resource URN '{urn}'; try giving it a unique name")
        self._goals[urn] = goal
        provider, _ = split_reference(goal.provider)
        self._requirements[urn] = goal.requirements() - {self.root} | ({provider} & self._goals.keys())
        return urn

    def set_outputs(self, urn: str, outputs: Properties) -> None:
        """Set the outputs of a component."""
        self._outputs[urn] = dict(outputs)

    def get(self, urn: str) -> Goal | None:
        """Return what was registered under this URN."""
        return self._goals.get(urn)

    def root_of(self, urn: str) -> str:
        """Return the URN of the topmost ancestor of a registered resource."""
        while (parent := self._goals[urn].parent) in self._goals:
            urn = parent
        return urn

    def only_follows(self, urn: str, other: str) -> bool:
        """Return False: a program registers only what a resource needs."""
        del urn, other
        return False

    def goal(self, urn: str, live: Live) -> Goal:
        """Return a resource as it was registered. Raises StepError where it can't be made of what is known."""
        del live
        goal = self._goals[urn]
        if not self.is_preview and has_unknown(dict(goal.inputs)):
            raise StepError(f"{urn} has an input whose value isn't known; what it depends on failed or is left out")
        return goal

    def outputs(self, urn: str, live: Live, unsettled: Mapping[str, None]) -> dict[str, Value] | None:
        """Return a component's outputs; until they are registered the former ones, if its inputs are as before."""
        del unsettled
        if urn in self._outputs:
            return self._outputs[urn]
        old = live.get(urn)
        return dict(old.outputs) if old and dict(old.inputs) == dict(self._goals[urn].inputs) else {}
