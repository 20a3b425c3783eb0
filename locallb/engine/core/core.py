"""One thread that owns the desired resources, the live state, its journal, timers and failures.

A change wakes only its waiting dependents. Every resource has at most one operation, however late that ends. One that
failed is tried again once something else is desired, or when the caller asks, who decides when. A partial core leaves
all but the requested parts of the stack as they are.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from msgspec import Struct, field
from msgspec.structs import replace

from locallb.engine.core.decisions import Decider, Decision, Settled, Waiting
from locallb.engine.core.desired_index import Groups
from locallb.engine.core.executor import Executor
from locallb.engine.core.interrupts import Stop
from locallb.engine.core.lanes import DEADLINE, HANGING, Lanes, LateLane
from locallb.engine.core.operations import (
    ADOPTING,
    MAKING,
    Begun,
    Kind,
    News,
    Operation,
    OperationResult,
    Refused,
    ended,
)
from locallb.engine.state.errors import EngineError, StepError, Unsupported
from locallb.engine.state.resource import Pending, ResourceState
from locallb.engine.state.stack_state import Drop, Free, Mutation, Put, StackState, Supersede
from locallb.engine.state.urns import is_provider, split_reference, type_of
from locallb.engine.state.values import Properties
from locallb.model.desired import ResourceKey

QUIET = 0.2
"""Seconds without a change after which the state file is written."""
LATEST = 5.0
"""Seconds after which it is written although changes go on."""


class Failure(Struct, frozen=True):
    """Why a resource isn't as desired."""

    error: EngineError
    about: object
    """What was desired, or is to go: of something else nothing is known."""


def _ignore(_news: News) -> None:
    """Listen to nothing."""


class Terms(Struct, frozen=True):
    """On which terms a core works."""

    reported: Callable[[News], None] = _ignore
    """Hears of everything, in the core's thread."""
    parallel: int | None = None
    """How many operations may be under way at a time, in all lanes."""
    is_partial: bool = False
    """Whether only what is asked for is brought about."""
    stop: Stop = field(default_factory=Stop)
    """Asks to begin nothing more; whoever asks from elsewhere wakes the core by `Executor.post`, too."""
    is_preview: bool = False
    """Whether operations are only foreseen."""
    trusts_made: bool = False
    """Whether what an operation made counts as desired without being compared: nothing else is desired meanwhile."""


class Core:
    """Brings a stack to what is desired."""

    def __init__(
        self,
        decider: Decider,
        lanes: Lanes,
        executor: Executor,
        terms: Terms = Terms(),  # noqa: B008 - it is frozen
    ) -> None:
        self._decider = decider
        self._lanes = lanes
        self._executor = executor
        self._terms = terms
        self._reported = terms.reported
        self._recorder = decider.recorder
        self._unsettled = decider.unsettled
        self._queue: deque[str] = deque()
        self._claimed: dict[str, Operation] = {}
        """Operations that wait in a lane or run, by resource."""
        self._running: dict[int, float] = {}
        """When each began."""
        self._waits: dict[str, str] = {}
        self._waiters: dict[str, dict[str, None]] = {}
        self._failures: dict[str, Failure] = {}
        self._made: dict[str, Properties] = {}
        """With which inputs a resource was made since it was settled last."""
        self._old: dict[str, list[ResourceState]] = {}
        self._unsaved_since: float | None = None
        self._changed_at = 0.0
        self._stop = Stop(terms.stop)
        self._scope: set[str] | None = set() if terms.is_partial else None
        """What was asked for; None stands for everything."""
        decider.is_partial = terms.is_partial
        snapshot = self._recorder.snapshot
        for old in snapshot.condemned.values():
            self._old.setdefault(old.urn, []).append(old)
        for urn in () if terms.is_partial else (*snapshot.live, *decider.remaining, *self._old):
            self._doubt(urn)

    # Requests

    def desire(self, groups: Groups, outputs: Properties | None = None) -> frozenset[str]:
        """Desire these groups, and nothing else, from now on, and these outputs of the Stack. Raises EngineError.

        Gives the URNs of what that concerns. A partial core changes nothing that is as was desired before, until it is
        asked for.
        """
        self.enter_stack(outputs)
        touched = self._decider.wanted.replace(groups)
        users = {user for urn in touched for user in self._decider.wanted.users(urn)}
        for urn, operation in [*self._claimed.items()]:
            if id(operation) not in self._running and (urn in touched or urn in users):
                self._lanes.withdraw(operation)
                del self._claimed[urn]
                self._doubt(urn)
        for urn in sorted(touched):
            if self._scope is None or urn in self._unsettled:
                self._doubt(urn)
            else:
                self._scope.discard(urn)
        return touched

    def enter_stack(self, outputs: Properties | None = None) -> None:
        """Let the state have the Stack, with these outputs if they are known."""
        stack = self._decider.stack_entry(outputs)
        self._apply(stack.changes)
        if stack.news:
            self._reported(stack.news)

    def include(self, urn: str) -> None:
        """Bring one more resource to what is desired from now on; what failed for it already has failed."""
        if failure := self._failures.get(urn):
            self._failures[urn] = replace(failure, about=self._decider.wanted.get(urn))
        self._doubt(urn)

    def complete(self) -> None:
        """Desire nothing more than was included: the rest is to go, also what couldn't be inspected."""
        self._decider.wanted.is_complete = True
        for urn, several in [*self._decider.remaining.items()]:
            if urn in self._failures and not self.is_wanted(urn) and several[0].kind != Kind.CREATE.value:
                del self._failures[urn]
                self._adopted(urn, ())

    def forget(self) -> None:
        """Forget how everything that was asked for has ended: what is needed of it is tried again. At rest only."""
        for known in (self._unsettled, self._failures, self._waits, self._waiters, self._made, self._scope):
            if known is not None:
                known.clear()

    def bring(self, roots: Collection[str], *, inspect: bool = False) -> frozenset[str]:
        """Bring what is below these roots to what is desired, whatever failed before; give what that is, by URN.

        Looks at the world first where the state may be wrong. What they need and isn't there is made as well, and what
        still uses what is to go is brought to what is desired before.
        """
        urns = self._below(roots)
        if self._scope is not None:
            self._scope |= urns
        for urn in sorted(urns):
            if inspect:
                self._inspect_at(urn)
            self._failures.pop(urn, None)
            self._doubt(urn)
        return urns

    def _below(self, roots: Collection[str]) -> frozenset[str]:
        snapshot = self._recorder.snapshot
        urns = {urn for root in roots for urn in self._decider.wanted.below(root)}
        urns.update(resource.urn for resource in snapshot.members_of(roots))
        remaining = (pending.resource for several in self._decider.remaining.values() for pending in several)
        old = (one for several in self._old.values() for one in several)
        urns.update(one.urn for one in (*remaining, *old) if snapshot.root_of_any(one) in roots)
        return frozenset(urns)

    def _inspect_at(self, urn: str) -> None:
        live = self._recorder.snapshot.live.get(urn)
        exists = live is not None and live.custom and not live.pending_replacement
        if live is not None and exists and urn not in self._decider.remaining:
            self._decider.remaining[urn] = [Pending(Kind.UPDATE.value, live)]

    def desire_nothing(self) -> None:
        """Desire that nothing is left, not even the Stack."""
        self._decider.keeps_stack = False
        touched = self._decider.wanted.replace({})
        for urn in (*sorted(touched), *self._recorder.snapshot.live):
            self._doubt(urn)

    def spare(self, which: Callable[[ResourceState], bool]) -> None:
        """Leave from now on what isn't desired, and what replacements left, where this holds of it."""
        self._decider.spares = which
        for urn in (*self._unsettled, *self._old):
            self._touch(urn)

    def stop(self) -> None:
        """Begin nothing more; from any thread or a signal's handler."""
        self._stop.ask()
        self._executor.post(lambda: None)

    @property
    def is_stopping(self) -> bool:
        return self._stop.is_requested()

    @property
    def is_settled(self) -> bool:
        """Whether everything is as desired."""
        return not (self._unsettled or self._old or self._claimed)

    @property
    def is_at_rest(self) -> bool:
        return not self._queue and not (self._running if self.is_stopping else self._claimed)

    @property
    def is_saved(self) -> bool:
        """Whether the state file has everything."""
        return self._unsaved_since is None

    def late_lanes(self) -> list[LateLane]:
        """List the lanes whose party doesn't answer, or slowly."""
        return self._lanes.late(self._executor.now())

    def is_under_way(self, urn: str) -> bool:
        """Return whether something is done for a resource, or for what it waits for."""
        observed: set[str] = set()
        while urn not in observed:
            if (operation := self._claimed.get(urn)) and (id(operation) in self._running or not self.is_stopping):
                return True
            observed.add(urn)
            urn = self._waits.get(urn, urn)
        return False

    def failure_of(self, urn: str) -> EngineError | None:
        """Return why a resource isn't as desired: for its own sake, or for that of what it waits for."""
        observed: set[str] = set()
        while urn not in observed:
            if urn in self._failures:
                return self._failures[urn].error
            observed.add(urn)
            urn = self._waits.get(urn, urn)
        return None

    @property
    def is_stopped(self) -> bool:
        """Whether nothing runs, and nothing will."""
        return self.is_stopping and not self._running

    @property
    def snapshot(self) -> StackState:
        """The state as it is now: to be read by the core's thread."""
        return self._recorder.snapshot

    @property
    def unsettled(self) -> Iterator[str]:
        """List what isn't as desired, by URN, but for what is left alone."""
        for urn in self._unsettled:
            if not self._decider.is_spared(urn):
                yield urn
        for urn, several in self._old.items():
            if urn not in self._unsettled and not all(map(self._decider.spares, several)):
                yield urn

    @property
    def failures(self) -> Mapping[str, EngineError]:
        """Why resources aren't as desired, by URN."""
        return {urn: failure.error for urn, failure in self._failures.items()}

    @property
    def waiting(self) -> Mapping[str, str]:
        """For which resource each one waits, by URN."""
        return self._waits

    def urn_of(self, key: ResourceKey) -> str:
        """Return the URN of a resource that is desired."""
        return self._decider.wanted.urn_of(key)

    def is_wanted(self, urn: str) -> bool:
        """Return whether a resource is desired at all."""
        return self._decider.wanted.get(urn) is not None

    def is_as_desired(self, urn: str) -> bool:
        """Return whether one resource is as desired."""
        return urn not in self._unsettled

    def has_ended(self, urn: str) -> bool:
        """Return whether one resource is as desired and nothing of it is left to be done."""
        return not (urn in self._unsettled or urn in self._claimed or urn in self._old)

    @property
    def next_time(self) -> float | None:
        """When there is something to do although nothing happens."""
        return self._next_time()

    # Loop

    def run(self, until: Callable[[], bool], longest: float | None = None) -> None:
        """Work until something is so, or for a time. Raises StateUnwritable."""
        end = None if longest is None else self._executor.now() + longest
        while True:
            self._work()
            now = self._executor.now()
            if until() or (end is not None and now >= end):
                return
            times = [time for time in (end, self._next_time()) if time is not None]
            message = self._executor.receive(min(times, default=None))
            if isinstance(message, OperationResult):
                self._end(message)
            elif message is not None:
                message()

    def _next_time(self) -> float | None:
        times = (None if self.is_stopping else self._lanes.next_change(), self._save_at())
        return min((time for time in times if time is not None), default=None)

    def _work(self) -> None:
        """Do all that can be done now without waiting."""
        now = self._executor.now()
        while True:
            while self._queue:
                self._step(self._queue.popleft())
            begun = [] if self.is_stopping else self._lanes.begin(now, self._room(now))
            if not begun:
                break
            for operation in begun:
                self._begin(operation)
        self._refuse_waiting(now)
        save_at = self._save_at()
        if save_at is not None and save_at <= now:
            self.save()

    def _room(self, now: float) -> int | None:
        """Return how many more operations may begin; None for any number. What hangs takes no room."""
        if self._terms.parallel is None:
            return None
        return max(0, self._terms.parallel - sum(at > now - DEADLINE for at in self._running.values()))

    def _refuse_waiting(self, now: float) -> None:
        """Fail what waits for a party that doesn't answer: whoever asked for it tries again."""
        for operation in self._lanes.refuse_waiting(now) if self._scope is not None else ():
            urn = operation.urn
            del self._claimed[urn]
            error = StepError(f"{operation.lane} doesn't answer: {HANGING} operations or more haven't ended there")
            self._refuse(urn, self._decider.wanted.get(urn), error)

    def _save_at(self) -> float | None:
        if self._unsaved_since is None:
            return None
        latest = self._unsaved_since + LATEST
        return latest if self._claimed else min(latest, self._changed_at + QUIET)

    def save(self) -> None:
        """Write the state file, operations under way included."""
        self._recorder.save()
        self._unsaved_since = None

    def drain(self, longest: float) -> None:
        """Wait until what runs has ended, for a time; how isn't noted, because nothing can be kept any more."""
        end = self._executor.now() + longest
        while self._running and self._executor.now() < end:
            message = self._executor.receive(end)
            if isinstance(message, OperationResult):
                self._running.pop(id(message.operation), None)

    # Decisions for a resource

    def _doubt(self, urn: str) -> None:
        self._unsettled[urn] = None
        self._touch(urn)

    def _touch(self, urn: str) -> None:
        """Check a resource again, and its waiting dependents."""
        self._queue.append(urn)
        for waiter in self._waiters.pop(urn, ()):
            self._waits.pop(waiter, None)
            self._queue.append(waiter)

    def _step(self, urn: str) -> None:
        about = self._decider.wanted.get(urn)
        if urn in self._claimed or (self.is_stopping and about is not None):
            return
        if urn in self._unsettled:
            self._ask_for_circle(urn)
            if not self._is_put_off(urn, about) and not self._decider.is_spared(urn):
                self._follow(urn, about, lambda: self._decider.decide(urn))
        if urn in self._decider.remaining or (urn in self._unsettled and self._decider.wanted.get(urn)):
            return
        for old in (*self._old.get(urn, ()),):
            if not self._decider.spares(old) and not self._is_put_off(urn, old) and urn not in self._claimed:
                self._follow(urn, old, lambda old=old: self._decider.decide_old(old))  # type: ignore[misc]

    def _ask_for_circle(self, urn: str) -> None:
        """Ask for what a resource comes to need and still needs it, as the state has it: that may have changed, too."""
        old = self._recorder.snapshot.live.get(urn)
        if self._scope is None or old is None or not self.is_wanted(urn):
            return
        needed = self._recorder.snapshot.needed_by(self._decider.wanted.requirements(urn) - old.references)
        for other in sorted(needed) if urn in needed else ():
            self._ask_for(other)

    def _ask_for(self, urn: str) -> None:
        """Ask, once, for what another one waits for."""
        if self._scope is not None and urn not in self._scope:
            self._scope.add(urn)
            self._doubt(urn)

    def _is_put_off(self, urn: str, about: object) -> bool:
        failure = self._failures.get(urn)
        return failure is not None and (failure.about is about or failure.about == about)

    def _follow(self, urn: str, about: object, decide: Callable[[], Decision]) -> None:
        try:
            decision = decide()
        except (StepError, Unsupported) as error:
            self._refuse(urn, about, error)
            return
        if self.is_stopping and not (isinstance(decision, Settled) and not decision.changes):
            return  # only what needs nothing more is noted
        if isinstance(decision, Operation):
            if decision.kind in MAKING and self._made.pop(urn, None) == decision.subject.inputs:
                wrong = StepError(f"{urn} is not as it was made a moment ago; that is a mistake in the provider")
                self._refuse(urn, about, wrong)
                return
            self._claim(urn, decision)
        elif isinstance(decision, Waiting):
            self._wait(urn, decision.on)
            if not is_provider(type_of(urn)):
                self._ask_for(decision.on)
        elif isinstance(decision, Settled):
            if urn in self._decider.remaining:
                self._adopted(urn, decision.changes)
            else:
                self._settle(urn, about, decision.changes)
            if decision.news:
                self._reported(decision.news)

    def _refuse(self, urn: str, about: object, error: EngineError) -> None:
        self._failures[urn] = Failure(error, about)
        self._reported(Refused(urn, error, next(iter(self._decider.remaining.get(urn, ())), None)))

    def _wait(self, urn: str, on: str) -> None:
        self._waits[urn] = on
        self._waiters.setdefault(on, {})[urn] = None

    def _claim(self, urn: str, operation: Operation) -> None:
        """Let an operation wait for its turn: of this resource, or of one that must go before."""
        other = operation.urn
        if other != urn:
            self._wait(urn, other)
            if other in self._claimed or self._is_put_off(other, self._decider.wanted.get(other)):
                return
            self._unsettled[other] = None
        self._claimed[other] = operation
        self._lanes.submit(operation)

    def _settle(self, urn: str, about: object, changes: Iterable[Mutation]) -> None:
        self._failures.pop(urn, None)
        self._made.pop(urn, None)
        if not isinstance(about, ResourceState):
            self._unsettled.pop(urn, None)
        self._apply(changes)
        self._touch_waiters(urn)
        for reader in self._decider.wanted.readers(urn):
            if urn not in self._decider.wanted.requirements(reader):  # a component that shows it
                self._doubt_reader(reader)

    def _doubt_reader(self, urn: str) -> None:
        if self._scope is None or urn in self._scope:
            self._doubt(urn)

    def _touch_waiters(self, urn: str) -> None:
        if urn in self._waiters or urn in self._old:
            self._touch(urn)

    def _adopted(self, urn: str, changes: Iterable[Mutation]) -> None:
        remaining = self._decider.remaining[urn]
        remaining.pop(0)
        if not remaining:
            del self._decider.remaining[urn]
        self._apply(changes)
        self._doubt(urn)

    # Operations

    def _begin(self, operation: Operation) -> None:
        if operation.kind not in ADOPTING:
            self._recorder.begin(operation.noted())
            self._note_change()
        self._running[id(operation)] = self._executor.now()
        self._reported(Begun(operation))
        self._executor.start(operation)

    def _end(self, outcome: OperationResult) -> None:
        operation = outcome.operation
        urn = operation.urn
        self._lanes.ended(operation)
        self._running.pop(id(operation), None)
        del self._claimed[urn]
        if outcome.error is not None:
            self._fail_operation(operation, outcome.error)
            self._reported(outcome)
            return
        snapshot = self._recorder.snapshot
        changes = (*ended(snapshot, operation.pending), *operation.changes(outcome.answer, snapshot))
        if operation.kind in ADOPTING:
            self._adopted(urn, changes)
        else:
            self._apply(changes)
            self._touch(urn)
        if operation.kind in MAKING and self._terms.trusts_made:
            self._settle(urn, self._decider.wanted.get(urn), ())
        elif operation.kind in MAKING:
            self._made[urn] = operation.subject.inputs
        self._reported(outcome)

    def _fail_operation(self, operation: Operation, error: EngineError) -> None:
        urn = operation.urn
        if operation.kind not in ADOPTING:
            self._apply(ended(self._recorder.snapshot, operation.pending))
        elif operation.kind is Kind.INSPECT and self._decider.wanted.is_complete and not self.is_wanted(urn):
            self._adopted(urn, ())  # whatever became of it is to go
            return
        if not self.is_wanted(urn) and urn not in self._recorder.snapshot.live and operation.kind is Kind.CREATE:
            self._touch(urn)  # nothing is left to be done
            return
        is_old = any(operation.subject is old for old in self._old.get(urn, ()))
        about = operation.subject if is_old else self._decider.wanted.get(urn)
        self._failures[urn] = Failure(error, about)

    # State

    def _note_change(self) -> None:
        self._changed_at = self._executor.now()
        if self._unsaved_since is None:
            self._unsaved_since = self._changed_at

    def _apply(self, changes: Iterable[Mutation]) -> None:
        """Change the state, and look again at what that concerns."""
        mutations = tuple(changes)
        if not mutations:
            return
        live = self._recorder.snapshot.live
        condemned = self._recorder.snapshot.condemned
        before = {urn: live.get(urn) for urn in map(_subject, mutations) if urn}
        freed = [condemned[one.number] for one in mutations if isinstance(one, Free)]
        self._recorder.apply(*mutations)
        self._note_change()
        for old in freed:
            self._old[old.urn].remove(old)
            if not self._old[old.urn]:
                del self._old[old.urn]
            self._touch(old.urn)
        for one in mutations:
            if isinstance(one, Supersede):
                self._old.setdefault(one.resource.urn, []).append(condemned[one.number])
        for urn, was in before.items():
            self._touch(urn)
            self._compare(was, live.get(urn))
        remaining = (was for urn, was in before.items() if was and _provider(was) != _provider(live.get(urn)))
        for provider in {_provider(removed) for removed in (*freed, *remaining)} - {""}:
            self._doubt(provider)

    def _compare(self, old: ResourceState | None, new: ResourceState | None) -> None:
        """Mark the resources that use changed outputs as unverified."""
        if old and new and (old.id, dict(old.outputs)) != (new.id, dict(new.outputs)):
            for reader in self._decider.wanted.readers(new.urn):
                self._doubt_reader(reader)


def _subject(mutation: Mutation) -> str:
    """Return the live resource that a mutation sets or drops, if it does."""
    if isinstance(mutation, Put | Supersede):
        return mutation.resource.urn
    return mutation.urn if isinstance(mutation, Drop) else ""


def _provider(resource: ResourceState | None) -> str:
    return split_reference(resource.provider)[0] if resource else ""
