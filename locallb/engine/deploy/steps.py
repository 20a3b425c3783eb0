"""The operations on one resource: announced, noted in the journal, done by the provider, recorded in the state.

Each is safe to be cut off anywhere: what was begun is known, what ended is recorded in one change. Whether an operation
is right is decided elsewhere (`deployment`, `deletion`).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import BoundedSemaphore

from msgspec import Struct
from msgspec.structs import replace

from locallb.engine.backend.store import Recorder
from locallb.engine.deploy.events import Op
from locallb.engine.deploy.interrupts import Stop
from locallb.engine.deploy.reporter import Reporter
from locallb.engine.providers.handles import Difference, Found, Handle
from locallb.engine.state.checkpoint import timestamp
from locallb.engine.state.errors import Cancelled, StepError
from locallb.engine.state.resource import Pending, ResourceState
from locallb.engine.state.snapshot import Drop, Free, Put, Snapshot, Supersede
from locallb.engine.state.values import UNKNOWN, PropertyChange, Value, changes_between, has_unknown

Changes = tuple[PropertyChange, ...]


class Steps(Struct, frozen=True):
    """Executes operations, at most as many at a time as `slots` has; in a preview only as far as providers plan."""

    recorder: Recorder
    reporter: Reporter
    slots: BoundedSemaphore
    stop: Stop
    preview: bool

    @contextmanager
    def _working(self) -> Iterator[None]:
        """Wait for a slot; start nothing after an interrupt."""
        with self.slots:
            self.go_on()
            yield

    def go_on(self) -> None:
        """Raise Cancelled after an interrupt."""
        if self.stop.is_requested():
            raise Cancelled

    def same(self, old: ResourceState, new: ResourceState) -> ResourceState:
        """Keep a resource, with whatever the program says again about its place in the graph."""
        with self.reporter.step(Op.SAME, new):
            return self._record(old, new)

    def component(self, op: Op, old: ResourceState | None, new: ResourceState, changes: Changes) -> ResourceState:
        """Create or update a component: nothing but an entry in the state."""
        with self.reporter.step(op, new, changes):
            return self._record(old, new)

    def _record(self, old: ResourceState | None, new: ResourceState) -> ResourceState:
        if old is not None and old.equals(new):
            return old
        self.recorder.apply(Put(new))
        return new

    def create(self, new: ResourceState, provider: Handle, changes: Changes) -> ResourceState:
        """Create a resource that the state doesn't have."""
        with self._working(), self.reporter.step(Op.CREATE, new, changes):
            number, made = self._create(new, provider)
            self.recorder.end(number, *adopted_instances(self.recorder.snapshot, made, provider), Put(made))
            return made

    def create_replacement(
        self, old: ResourceState, new: ResourceState, provider: Handle, changes: Changes
    ) -> ResourceState:
        """Create the successor of a resource, which is kept for its deletion unless that has happened already."""
        with self._working(), self.reporter.step(Op.CREATE_REPLACEMENT, new, changes):
            number, made = self._create(new, provider)
            put = Put(made) if old.pending_replacement else Supersede(made, self.recorder.number())
            self.recorder.end(number, *adopted_instances(self.recorder.snapshot, made, provider), put)
            return made

    def _create(self, new: ResourceState, provider: Handle) -> tuple[int, ResourceState]:
        self._refuse_unknown(new)
        number = self.recorder.begin(Pending("creating", new))
        try:
            return number, self._made(new, provider)
        except StepError:
            self.recorder.end(number)
            raise

    def _made(self, new: ResourceState, provider: Handle) -> ResourceState:
        identity, outputs = self._call_create(new, provider)
        now = timestamp()
        return replace(new, id=identity, outputs=outputs, created=now, modified=now)

    def _call_create(self, new: ResourceState, provider: Handle) -> tuple[str, dict[str, Value]]:
        if not self.preview:
            return provider.create(new, preview=False)
        if not provider.can_plan():
            return UNKNOWN, dict(new.inputs)
        identity, outputs = provider.create(new, preview=True)
        return identity or UNKNOWN, outputs

    def _refuse_unknown(self, new: ResourceState) -> None:
        if not self.preview and has_unknown(dict(new.inputs)):
            raise StepError(f"{new.urn} has an input whose value isn't known; what it depends on failed or is left out")

    def finish_creation(self, number: int, wanted: ResourceState, provider: Handle) -> None:
        """Run a creation again that an earlier run broke off, under its number; a failure leaves it under way."""
        with self._working():
            self._refuse_unknown(wanted)
            made = self._made(wanted, provider)
        old = self.recorder.snapshot.live.get(wanted.urn)
        superseding = old is not None and not old.pending_replacement
        put = Supersede(made, self.recorder.number()) if superseding else Put(made)
        self.recorder.end(number, *adopted_instances(self.recorder.snapshot, made, provider), put)

    def update(self, old: ResourceState, new: ResourceState, provider: Handle, changes: Changes) -> ResourceState:
        """Update a resource in place."""
        with self._working(), self.reporter.step(Op.UPDATE, new, changes):
            self._refuse_unknown(new)
            number = self.recorder.begin(Pending("updating", replace(new, id="", outputs={})))
            try:
                outputs = self._call_update(old, new, provider)
            except StepError:
                self.recorder.end(number)
                raise
            made = replace(new, id=old.id, outputs=outputs, created=old.created, modified=timestamp())
            self.recorder.end(number, Put(made))
            return made

    def _call_update(self, old: ResourceState, new: ResourceState, provider: Handle) -> dict[str, Value]:
        if self.preview and not provider.can_plan():
            return dict(new.inputs)
        return provider.update(old, new, preview=self.preview)

    def read(self, old: ResourceState, provider: Handle) -> Found | None:
        """Read a resource as it is in the world, None when it is gone."""
        with self._working():
            return provider.read(old)

    def replaced(self, new: ResourceState, changes: Changes) -> None:
        """Report that a resource is replaced; the work is done by other operations."""
        with self.reporter.step(Op.REPLACE, new, changes):
            pass

    def prepare(self, new: ResourceState, provider: Handle) -> None:
        """Have the provider get ready for a successor, before anything is deleted. Raises StepError if it refuses."""
        if not self.preview and not has_unknown(dict(new.inputs)):
            with self._working():
                provider.prepare(new)

    def delete_first(self, old: ResourceState, provider: Handle) -> ResourceState:
        """Delete a resource whose successor comes afterwards."""
        with self._working(), self.reporter.step(Op.DELETE_REPLACED, old):
            number = self._delete(old, provider)
            removed = replace(old, pending_replacement=True)
            self.recorder.end(number, Put(removed))
            return removed

    def delete(self, old: ResourceState, provider: Handle | None) -> None:
        """Delete a resource that is no longer wanted; without a provider only the entry (components, providers)."""
        with self._working(), self.reporter.step(Op.DELETE, old):
            if provider is None or old.pending_replacement:
                self.recorder.apply(Drop(old.urn))
            else:
                self.recorder.end(self._delete(old, provider), Drop(old.urn))

    def delete_old_instance(self, number: int, old: ResourceState, provider: Handle | None) -> None:
        """Delete what a replacement left, unless the resource is that thing again, as earlier versions noted it."""
        with self._working(), self.reporter.step(Op.DELETE_REPLACED, old):
            if provider is None or self._is_live(old, provider):
                self.recorder.apply(Free(number))
            else:
                self.recorder.end(self._delete(old, provider), Free(number))

    def _is_live(self, old: ResourceState, provider: Handle) -> bool:
        live = self.recorder.snapshot.live.get(old.urn)
        return live is not None and not live.pending_replacement and provider.is_same_thing(old, live)

    def _delete(self, old: ResourceState, provider: Handle) -> int:
        number = self.recorder.begin(Pending("deleting", old))
        try:
            if not self.preview:
                provider.delete(old)
        except StepError:
            self.recorder.end(number)
            raise
        return number


def adopted_instances(snapshot: Snapshot, made: ResourceState, provider: Handle) -> tuple[Free, ...]:
    """Forget the old instances that are what a creation made: the resource is again what it was before."""
    mine = [(number, old) for number, old in dict(snapshot.condemned).items() if old.urn == made.urn]
    return tuple(Free(number) for number, old in mine if provider.is_same_thing(old, made))


def shown_changes(old: ResourceState, new: ResourceState, difference: Difference) -> Changes:
    """Return the properties that change: those of the inputs, and those that the provider found drifted."""
    changes = changes_between(old.inputs, new.inputs, difference.replaces)
    covered = {change.path.split(".")[0].split("[")[0] for change in changes}
    keys = {key.split(".")[0].split("[")[0] for key in difference.keys} - covered - {"provider"}
    drifted = {key: old.outputs[key] for key in keys if key in old.outputs}
    wanted = {key: new.inputs[key] for key in keys if key in new.inputs}
    return changes + changes_between(drifted, wanted, difference.replaces)
