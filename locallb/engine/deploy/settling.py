"""Resolves pending operations of an interrupted run before anything else is decided.

A creation is run again with the inputs that were recorded: providers take over what they made for the same owner, so
the resource gets into the state and is then kept, changed or deleted like any other. An update or deletion is resolved
by reading the resource. What can't be resolved now stays under way in the state, and the next run tries again: what
it made may exist. (The official command line keeps creations pending until the user clears them.)
"""

from collections.abc import Callable, Iterator, Mapping

from msgspec import Struct
from msgspec.structs import replace

from locallb.engine.deploy.events import Op, Severity
from locallb.engine.deploy.provider_resources import ProviderResources
from locallb.engine.deploy.steps import Steps
from locallb.engine.providers.handles import Found, Handle
from locallb.engine.state.checkpoint import timestamp
from locallb.engine.state.errors import EngineError, StepError, Unsupported
from locallb.engine.state.resource import Pending, ResourceState
from locallb.engine.state.snapshot import Drop, End, Mutation, Put, Snapshot


class Settler(Struct, frozen=True):
    """Resolves the pending operations below those roots for which `concerns` holds, by URN."""

    steps: Steps
    providers: ProviderResources
    concerns: Callable[[str], bool]

    def settle(self) -> Mapping[str, str]:
        """Resolve them, in the order in which they began; return those that can't be resolved now, with their roots."""
        return dict(self._settle())

    def _settle(self) -> Iterator[tuple[str, str]]:
        for number, operation in sorted(self.steps.recorder.snapshot.pending.items()):
            root = self.steps.recorder.snapshot.root_of_any(operation.resource)
            if self.concerns(root):
                resolve = self._recreate if operation.kind == "creating" else self._inspect
                if not resolve(number, operation):
                    yield operation.resource.urn, root

    def _recreate(self, number: int, operation: Pending) -> bool:
        resource = operation.resource
        try:
            resource = self.providers.attach(resource)
            handle = self.providers.handle_of(resource)
            if self._exists(resource, handle):
                self.steps.recorder.apply(End(number))
                return True
            self.steps.finish_creation(number, resource, handle)
        except (StepError, Unsupported) as error:
            return self._give_up(number, resource, error)
        self._log(resource.urn, f"finished the interrupted creation of {resource.urn}")
        return True

    def _exists(self, resource: ResourceState, handle: Handle) -> bool:
        """Return whether the state has the very resource already: another engine created it since."""
        live = self.steps.recorder.snapshot.live.get(resource.urn)
        if live is None or live.pending_replacement:
            return False
        return not handle.diff(live, resource.inputs).replaces

    def _give_up(self, number: int, resource: ResourceState, error: EngineError) -> bool:
        """Forget a creation of which nothing is left; keep one of which something may be, for the next run."""
        if self._leaves_nothing(resource):
            self.steps.recorder.apply(End(number))
            self._log(resource.urn, f"nothing is left of the interrupted creation of {resource.urn} ({error})")
            return True
        what = f"the interrupted creation of {resource.urn} can't be finished ({error}); the next run tries again"
        self.steps.reporter.log(Severity.ERROR, what, resource.urn)
        return False

    def _leaves_nothing(self, resource: ResourceState) -> bool:
        try:
            return self.providers.handle_of(resource).leaves_nothing(resource)
        except (StepError, Unsupported):
            return False

    def _inspect(self, number: int, operation: Pending) -> bool:
        urn = operation.resource.urn
        live = self.steps.recorder.snapshot.live.get(urn)
        is_it = live is not None and live.id == (operation.resource.id or live.id)
        if live is not None and is_it and not self._refresh(live):
            return False
        self.steps.recorder.apply(End(number))
        self._log(urn, f"looked at {urn}, whose {operation.kind} was interrupted")
        return True

    def _refresh(self, old: ResourceState) -> bool:
        """Read a resource and take that over; return whether it could be read."""
        if not old.custom or old.pending_replacement:
            return True
        recorder, handle = self.steps.recorder, self.providers.handle_of(old)
        try:
            with self.steps.reporter.step(Op.REFRESH, old):
                found = self.steps.read(old, handle)
        except (StepError, Unsupported) as error:
            self.steps.reporter.log(Severity.ERROR, str(error), old.urn)
            return False
        if mutations := adopted(recorder.snapshot, old, found):
            recorder.apply(*mutations)
        return True

    def _log(self, urn: str, message: str) -> None:
        self.steps.reporter.log(Severity.INFO, message, urn)


def adopted(snapshot: Snapshot, old: ResourceState, observed: Found | None) -> tuple[Mutation, ...]:
    """Return what brings the state up to what was seen of a resource."""
    if observed is None:
        return _forgotten(snapshot, old)
    current = snapshot.live.get(old.urn, old)  # a reference of it may be gone meanwhile
    new = replace(current, id=observed.id, inputs=observed.inputs or old.inputs, outputs=observed.outputs)
    if new.equals(current):
        return ()
    drifted = dict(observed.outputs) != dict(old.outputs)
    return (Put(replace(new, modified=timestamp()) if drifted else new),)


def _forgotten(snapshot: Snapshot, old: ResourceState) -> tuple[Mutation, ...]:
    """Drop a resource that is gone; one with children stays as an entry that has to be created again."""
    users = snapshot.users_of(old.urn)
    if any(user.parent == old.urn for user in users):
        return (Put(replace(old, pending_replacement=True)),)
    return (*(Put(user.without_reference(old.urn)) for user in users), Drop(old.urn))
