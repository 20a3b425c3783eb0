"""Reads what the resources are in the world and brings the state up to that, before an update or on its own.

What is gone leaves the state, and the references to it with it. A change in the world is compared by the provider, so
that only one that matters counts; its data is taken over in any case.
"""

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress

from msgspec import Struct
from msgspec.structs import replace

from locallb.engine.deploy.events import Op, Severity
from locallb.engine.deploy.interrupts import waited_for
from locallb.engine.deploy.provider_resources import ProviderResources
from locallb.engine.deploy.steps import Steps
from locallb.engine.deploy.threads import Shift, dealt
from locallb.engine.providers.handles import Found
from locallb.engine.state.checkpoint import timestamp
from locallb.engine.state.errors import EngineError, StepError, Unsupported
from locallb.engine.state.resource import ResourceState
from locallb.engine.state.snapshot import Drop, Mutation, Put, Snapshot
from locallb.engine.state.urns import is_provider
from locallb.engine.state.values import changes_between

_MANY = 150
"""Resources of one look from which on it is worth while to ask for all that there is, not for each: fifty Services."""


class Refresher(Struct, frozen=True):
    """Refreshes resources; as its own command (`counting`) the changes are the result, otherwise only a first step."""

    steps: Steps
    providers: ProviderResources
    crew: ThreadPoolExecutor
    workers: int
    """How many of the crew are to look at the same time."""
    counting: bool

    def refresh(self, resources: Iterable[ResourceState]) -> bool:
        """Read these, in parallel; failures are reported, not raised. Return whether all could be read."""
        all_read = True
        for old, seen in self._seen([resource for resource in resources if not is_provider(resource.type)]):
            self._settle(old, seen)
            all_read &= not isinstance(seen, EngineError)
        return all_read

    def drifted(self, resources: Iterable[ResourceState]) -> Iterator[ResourceState]:
        """Return those that are gone, differ where that matters, or can't be read; an update tells why not."""
        asked = [old for old in resources if _can_be_read(old) and not is_provider(old.type)]
        with self._one_look(asked):
            looked_at = [*self._seen(asked)]
        for old, seen in looked_at:
            if seen is None or isinstance(seen, EngineError) or self._changed(old, seen):
                yield old

    @contextmanager
    def _one_look(self, asked: Sequence[ResourceState]) -> Iterator[None]:
        """Tell the providers of many resources that these are only looked at."""
        with ExitStack() as stack:
            for one in {old.provider: old for old in asked}.values() if len(asked) >= _MANY else ():
                with suppress(StepError, Unsupported):  # whoever is looked at says what is wrong
                    stack.enter_context(self.providers.handle_of(one).one_look())
            yield

    def _seen(self, asked: Sequence[ResourceState]) -> Iterator[tuple[ResourceState, Found | EngineError | None]]:
        """Look at these, each thread at a portion: to hand one over takes as long as many a look."""
        hands = dealt(asked, self.workers)
        with waited_for(Shift(self.crew)) as pool:
            seen = [*pool.map(self._look_at, hands)]
        for number, old in enumerate(asked):
            yield old, seen[number % len(hands)][number // len(hands)]

    def _look_at(self, portion: Sequence[ResourceState]) -> Sequence[Found | EngineError | None]:
        return [*map(self._look, portion)]

    def _look(self, old: ResourceState) -> Found | EngineError | None:
        if not _can_be_read(old):
            return Found(old.id, dict(old.inputs), dict(old.outputs))
        try:
            if self.counting:
                return self.steps.read(old, self.providers.handle_of(old))
            with self.steps.reporter.step(Op.REFRESH, old):
                return self.steps.read(old, self.providers.handle_of(old))
        except (StepError, Unsupported) as error:
            return error

    def _settle(self, old: ResourceState, seen: Found | EngineError | None) -> None:
        """Take over what was seen: here one at a time, because a resource that is gone touches its users."""
        if isinstance(seen, EngineError):
            self.steps.reporter.say(Severity.ERROR, str(seen), old.urn)
            return
        if self.counting:
            changed = self._changed(old, seen)
            changes = changes_between(old.outputs, seen.outputs) if seen and changed else ()
            with self.steps.reporter.step(
                Op.DELETE if seen is None else Op.UPDATE if changed else Op.SAME, old, changes
            ):
                pass
        self._take_over(old, seen)

    def _changed(self, old: ResourceState, read: Found | None) -> bool:
        """Ask the provider whether a difference matters."""
        if read is None or read.outputs == dict(old.outputs):
            return False
        seen = replace(old, id=read.id, inputs=read.inputs, outputs=read.outputs)
        return bool(self.providers.handle_of(old).diff(seen, old.inputs).changes)

    def _take_over(self, old: ResourceState, seen: Found | None) -> None:
        recorder = self.steps.recorder
        if mutations := taken_over(recorder.snapshot, old, seen):
            recorder.apply(*mutations)


def taken_over(snapshot: Snapshot, old: ResourceState, seen: Found | None) -> tuple[Mutation, ...]:
    """Return what brings the state up to what was seen of a resource."""
    if seen is None:
        return _forgotten(snapshot, old)
    current = snapshot.live.get(old.urn, old)  # a reference of it may be gone meanwhile
    new = replace(current, id=seen.id, inputs=seen.inputs or old.inputs, outputs=seen.outputs)
    if new.equals(current):
        return ()
    drifted = dict(seen.outputs) != dict(old.outputs)
    return (Put(replace(new, modified=timestamp()) if drifted else new),)


def _forgotten(snapshot: Snapshot, old: ResourceState) -> tuple[Mutation, ...]:
    """Drop a resource that is gone; one with children stays as an entry that has to be created again."""
    users = snapshot.users_of(old.urn)
    if any(user.parent == old.urn for user in users):
        return (Put(replace(old, pending_replacement=True)),)
    return (*(Put(user.without_reference(old.urn)) for user in users), Drop(old.urn))


def _can_be_read(resource: ResourceState) -> bool:
    """Return whether there is something in the world to be compared with: not of a component, or of what is gone."""
    return resource.custom and not resource.pending_replacement
