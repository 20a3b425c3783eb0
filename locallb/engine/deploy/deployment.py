"""One run's decisions: for each registration, what has to happen to the resource, and what the program is told.

Called from the threads on which the program's registrations arrive, several at a time; a resource is registered only
after everything that it depends on was answered. Decides as the official command line does; executes through `steps`.
"""

from collections.abc import Mapping
from threading import RLock

from msgspec import Struct, field
from msgspec.structs import replace

from locallb.engine.deploy.events import Op, Severity
from locallb.engine.deploy.goal import Goal, Outcome, Reply
from locallb.engine.deploy.provider_resources import ProviderResources
from locallb.engine.deploy.replacement import dependents_to_replace
from locallb.engine.deploy.scope import Scope
from locallb.engine.deploy.steps import Changes, Steps, shown_changes
from locallb.engine.providers.handles import Handle
from locallb.engine.state.checkpoint import timestamp
from locallb.engine.state.errors import EngineError, FullScopeNeeded, StepError
from locallb.engine.state.resource import ResourceState
from locallb.engine.state.snapshot import Put, Snapshot
from locallb.engine.state.urns import is_provider, make_urn
from locallb.engine.state.values import Properties, Value, changes_between, has_unknown, without_unknown


class Deployment(Struct):
    """The state of one run of a program."""

    project: str
    stack: str
    scope: Scope
    steps: Steps
    providers: ProviderResources
    unsettled: frozenset[str] = frozenset()
    """URNs of which an interrupted operation couldn't be resolved: what there is of them isn't known."""
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    outputs: Mapping[str, Value] = field(default_factory=dict)
    _roots: dict[str, str] = field(default_factory=dict)
    _lock: RLock = field(default_factory=RLock)

    @property
    def snapshot(self) -> Snapshot:
        """The resources as they are now."""
        return self.steps.recorder.snapshot

    def register(self, goal: Goal) -> Reply:
        """Create, update or replace a resource as declared. Raises EngineError when the program can't go on."""
        self.steps.go_on()
        urn = make_urn(self.stack, self.project, goal.parent, goal.type, goal.name)
        self._claim(urn, goal)
        try:
            reply = self._register(urn, goal)
        except StepError as error:
            self.steps.reporter.log(Severity.ERROR, str(error), urn)
            reply = Reply(urn, Outcome.FAILED)
        except EngineError:
            self.outcomes[urn] = Outcome.FAILED
            raise
        self.outcomes[urn] = reply.outcome
        return reply

    def _is_outside(self, goal: Goal) -> bool:
        """Return whether a resource, whose parent is registered, is outside the scope."""
        if self.scope.is_full or goal.is_stack or is_provider(goal.type):
            return False
        urn = make_urn(self.stack, self.project, goal.parent, goal.type, goal.name)
        return not self.scope.covers(self._roots.get(goal.parent) or urn)

    def _claim(self, urn: str, goal: Goal) -> None:
        with self._lock:
            if urn in self.outcomes:
                raise EngineError(f"Duplicate resource URN '{urn}'; try giving it a unique name")
            self.outcomes[urn] = Outcome.SKIPPED
            self._roots[urn] = self._roots.get(goal.parent) or urn
            if goal.is_stack:
                self._roots[urn] = ""

    def _register(self, urn: str, goal: Goal) -> Reply:
        if self._is_outside(goal):
            return self._carry_over(urn)
        if urn in self.unsettled:
            return Reply(urn, Outcome.FAILED)
        if self._needs_broken(goal):
            return Reply(urn, Outcome.SKIPPED)
        self._refuse_circle(urn, goal)
        if is_provider(goal.type):
            made = self.providers.register(urn, goal)
            return Reply(urn, Outcome.DONE, made.id, made.outputs)
        if goal.custom:
            made = self._custom(urn, goal)
            return Reply(urn, Outcome.DONE, made.id, made.outputs)
        self._component(urn, goal)
        return Reply(urn)

    def _carry_over(self, urn: str) -> Reply:
        """Answer for a resource outside the scope from the state, where nothing of it changes."""
        old = self.snapshot.live.get(urn)
        return Reply(urn, Outcome.OUTSIDE, old.id, old.outputs) if old else Reply(urn, Outcome.SKIPPED)

    def _needs_broken(self, goal: Goal) -> bool:
        """Return whether something that the goal needs failed or was skipped."""
        bad = {Outcome.FAILED, Outcome.SKIPPED}
        return any(self.outcomes.get(urn) in bad for urn in goal.requirements())

    def _refuse_circle(self, urn: str, goal: Goal) -> None:
        """Refuse to refer to what refers to this resource, and is outside the scope: there it may have changed too."""
        old = self.snapshot.live.get(urn)
        if old is None or self.scope.is_full:
            return
        if urn in self.snapshot.needed_by(goal.requirements() - old.references):
            raise FullScopeNeeded(f"{urn} comes to need what still needs it outside the scope; update everything")

    def _component(self, urn: str, goal: Goal) -> None:
        old = self.snapshot.live.get(urn)
        new = goal.state(urn, goal.inputs, old)
        if old is None:
            now = timestamp()
            new = replace(new, created=now, modified=now)
            self.steps.component(Op.CREATE, None, new, changes_between({}, goal.inputs))
        elif dict(old.inputs) == dict(goal.inputs):
            self.steps.same(old, replace(new, outputs=old.outputs))
        else:
            self.steps.component(Op.UPDATE, old, new, changes_between(old.inputs, goal.inputs))

    def _custom(self, urn: str, goal: Goal) -> ResourceState:
        reference, provider = self.providers.provider_for(urn, goal)
        old = self.snapshot.live.get(urn)
        checked_against = old.inputs if old and not old.pending_replacement else {}
        inputs = provider.check(urn, checked_against, goal.inputs)
        new = replace(goal.state(urn, inputs, old), provider=reference)
        if old is None:
            return self.steps.create(new, provider, changes_between({}, inputs))
        if old.pending_replacement:
            return self._recreate(old, new, provider, changes_between(old.inputs, inputs))
        difference = self.providers.compare(old, new, provider)
        changes = shown_changes(old, new, difference)
        if not difference.changes:
            return self.steps.same(old, replace(new, id=old.id, outputs=old.outputs))
        if not difference.replaces:
            return self.steps.update(old, new, provider, changes)
        # A successor owes nothing to the old inputs: it is checked without them.
        renewed = replace(new, inputs=provider.check(urn, {}, goal.inputs))
        first = goal.delete_before_replace
        if difference.delete_before_replace if first is None else first:
            self.steps.prepare(renewed, provider)
            return self._recreate(self._delete_first(old, provider), renewed, provider, changes)
        made = self.steps.create_replacement(old, renewed, provider, changes)
        self.steps.replaced(renewed, changes)
        return made

    def _recreate(self, old: ResourceState, new: ResourceState, provider: Handle, changes: Changes) -> ResourceState:
        """Create the successor of a resource that an earlier step or run deleted already."""
        self.steps.replaced(new, changes)
        return self.steps.create_replacement(old, new, provider, changes)

    def _delete_first(self, old: ResourceState, provider: Handle) -> ResourceState:
        for dependent in dependents_to_replace(self.snapshot, old, self.providers):
            self._refuse_outside(old, dependent)
            self.steps.delete_first(dependent, self.providers.handle_of(dependent))
        return self.steps.delete_first(old, provider)

    def _refuse_outside(self, old: ResourceState, dependent: ResourceState) -> None:
        if not self.scope.covers(self.snapshot.root_of(dependent.urn)):
            raise StepError(
                f"{old.urn} must be deleted before it is created again, and {dependent.urn} outside the scope needs it;"
                " run an update of everything"
            )

    def broken_roots(self) -> frozenset[str]:
        """Return the root resources in which something failed or was skipped."""
        bad = {Outcome.FAILED, Outcome.SKIPPED}
        return frozenset(self._roots[urn] for urn, outcome in self.outcomes.items() if outcome in bad)

    def register_outputs(self, urn: str, outputs: Properties, *, is_stack: bool) -> None:
        """Set a component's outputs, those of the Stack too."""
        if is_stack:
            self.outputs = without_unknown(outputs)
        if self.outcomes.get(urn) is not Outcome.DONE:
            return
        old = self.snapshot.live[urn]
        existing = _resolved_outputs(old, outputs) if is_stack else without_unknown(outputs)
        if is_stack and not self.scope.is_full:
            existing = dict(sorted({**old.outputs, **existing}.items()))
        if dict(old.outputs) != existing:
            self.steps.recorder.apply(Put(replace(old, outputs=existing)))


def _resolved_outputs(old: ResourceState, outputs: Properties) -> dict[str, Value]:
    """Keep the former value of a stack output that something failed or left out makes unknown."""
    retained = {key: old.outputs[key] for key, value in outputs.items() if has_unknown(value) and key in old.outputs}
    return dict(sorted({**without_unknown(outputs), **retained}.items()))
