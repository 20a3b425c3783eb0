"""Reads what resources are in the world, each in the lane of its party, and compares that with the state.

What is gone leaves the state, and the references to it with it. A change in the world is compared by the provider, so
that only one that matters counts; its data is taken over in any case. Not here: what is done about a difference.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from math import inf
from time import monotonic
from typing import TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from locallb.engine.core.events import Op, Severity
from locallb.engine.core.executor import Message, ThreadExecutor
from locallb.engine.core.interrupts import waking
from locallb.engine.core.lanes import Parties
from locallb.engine.core.operations import Kind, OperationResult, adopted, ended
from locallb.engine.core.session import Run
from locallb.engine.provider_handles import Found
from locallb.engine.state.errors import EngineError, StepError, Unsupported
from locallb.engine.state.resource import Pending, ResourceState
from locallb.engine.state.urns import is_provider
from locallb.engine.state.values import changes_between

_MANY = 150
"""Resources of one read from which on it is worth while to ask for all that there is, not for each: fifty Services."""
_MOMENT = 0.01
"""Seconds of reads that are handed to a thread together."""
_CREATING = Kind.CREATE.value
Read: TypeAlias = Found | EngineError | None
"""What a resource is, why it can't be read, or that it is gone."""
_UNREAD = StepError("it doesn't answer")


class Reader(Struct, frozen=True):
    """Reads resources of one run, many at once.

    What isn't read within `longest` seconds is given up once nothing else is, with all that waits for the same party.
    """

    run: Run
    parties: Parties
    longest: float = inf

    def refresh(self, resources: Iterable[ResourceState]) -> None:
        """Bring the state up to the world, before an update; failures are reported, not raised. Raises Cancelled."""
        for old, read in self._read_all(resources, Op.REFRESH):
            self._take_over(old, read)

    def refresh_everything(self) -> None:
        """Bring the state up to the world, and count what changed. Raises Cancelled.

        What an earlier run broke off is settled by that, but for creations: what became of those an update finds out.
        """
        recorder, reporter = self.run.recorder, self.run.reporter
        remaining: dict[str, list[Pending]] = {}
        for pending in (*recorder.snapshot.pending.values(),):
            live = recorder.snapshot.live.get(pending.resource.urn)
            if pending.kind == _CREATING:
                continue
            if live is not None and live.id == (pending.resource.id or live.id):
                remaining.setdefault(live.urn, []).append(pending)
            else:
                self._settle(pending)
        for old, read in self._read_all(recorder.snapshot.in_order_live()):
            if not isinstance(read, EngineError):
                changed = self._is_changed(old, read)
                changes = changes_between(old.outputs, read.outputs) if read and changed else ()
                op = Op.DELETE if read is None else Op.UPDATE if changed else Op.SAME
                reporter.end(reporter.begin(op, old, changes))
            self._take_over(old, read)
            for pending in remaining.get(old.urn, ()) if not isinstance(read, EngineError) else ():
                self._settle(pending)

    def differing(self, resources: Iterable[ResourceState]) -> Iterator[ResourceState]:
        """Return resources that are gone, drifted, or can't be read in time. Raises Cancelled."""
        requested = [old for old in resources if _can_be_read(old)]
        with self._one_pass(requested):
            read = self._read_all(requested)
        for old, found in read:
            if found is None or isinstance(found, EngineError) or self._is_changed(old, found):
                yield old

    @contextmanager
    def _one_pass(self, requested: Sequence[ResourceState]) -> Iterator[None]:
        """Tell the providers of many resources that these are only read."""
        with ExitStack() as stack:
            for one in {old.provider: old for old in requested}.values() if len(requested) >= _MANY else ():
                with suppress(StepError, Unsupported):  # the read of the resource reports it
                    stack.enter_context(self.run.providers.handle_of(one).one_pass())
            yield

    def _read_all(
        self, resources: Iterable[ResourceState], op: Op | None = None
    ) -> Sequence[tuple[ResourceState, Read]]:
        """Return what each of these is, providers aside; each read is reported as `op`. Raises Cancelled."""
        requested = [old for old in resources if not is_provider(old.type)]
        executor = ThreadExecutor()
        reads = _Reads(self, executor, op)
        for old in requested:
            if _can_be_read(old):
                # Where nothing is given up, parties needn't be told apart: larger portions are read faster.
                lane = "" if self.longest == inf else self.parties.lane_of(old)
                reads.waiting.setdefault(lane, []).append(old)
            else:
                reads.found[old.urn] = Found(old.id, dict(old.inputs), dict(old.outputs))
        try:
            with waking(lambda: executor.post(lambda: None)):
                reads.work()
        finally:
            executor.close()
        return [(old, reads.found.get(old.urn, _UNREAD)) for old in requested]

    def _is_changed(self, old: ResourceState, read: Found | None) -> bool:
        """Ask the provider whether a difference matters."""
        if read is None or read.outputs == dict(old.outputs):
            return False
        observed = replace(old, id=read.id, inputs=read.inputs, outputs=read.outputs)
        return bool(self.run.providers.handle_of(old).diff(observed, old.inputs).changes)

    def _take_over(self, old: ResourceState, read: Read) -> None:
        """Take over what was read: one at a time, because a resource that is gone touches its users."""
        recorder = self.run.recorder
        if isinstance(read, EngineError):
            self.run.reporter.log(Severity.ERROR, str(read), old.urn)
        elif mutations := adopted(recorder.snapshot, old, read):
            recorder.apply(*mutations)

    def _settle(self, pending: Pending) -> None:
        recorder, urn = self.run.recorder, pending.resource.urn
        if mutations := ended(recorder.snapshot, pending):
            recorder.apply(*mutations)
        self.run.reporter.log(Severity.INFO, f"looked at {urn}, whose {pending.kind} was interrupted", urn)


class _Portion(Struct, eq=False):
    """Resources that one thread reads one after the other."""

    lane: str
    resources: Sequence[ResourceState]
    began: float


class _Reads(Struct):
    """Reads under way: each thread has a portion of a lane, and the lanes take turns."""

    reader: Reader
    executor: ThreadExecutor
    op: Op | None
    waiting: dict[str, list[ResourceState]] = field(default_factory=dict)
    """By lane."""
    found: dict[str, Read] = field(default_factory=dict)
    _running: dict[int, _Portion] = field(default_factory=dict)

    def work(self) -> None:
        """Read all that waits, but what is given up. Raises Cancelled."""
        run, longest = self.reader.run, self.reader.longest
        while True:
            run.go_on()
            now = self.executor.now()
            recent = [portion.began for portion in self._running.values() if portion.began + longest > now]
            if len(recent) < len(self._running):
                self._give_up_lanes(now)
            if self.waiting and len(recent) < run.parallel:
                self._begin(now)
            elif recent:
                self._receive(None if longest == inf else min(recent) + longest)
            else:
                return

    def _give_up_lanes(self, now: float) -> None:
        for portion in self._running.values():
            if portion.began + self.reader.longest <= now:
                self.waiting.pop(portion.lane, None)

    def _begin(self, now: float) -> None:
        lane = next(iter(self.waiting))
        several = self.waiting.pop(lane)
        size = -(-len(several) // self.reader.run.parallel)
        if rest := several[size:]:
            self.waiting[lane] = rest
        portion = _Portion(lane, several[:size], now)
        self._running[id(portion)] = portion
        self.executor.call(lambda: self._read(portion))

    def _receive(self, until: float | None) -> None:
        message = self.executor.receive(until)
        if message is not None and not isinstance(message, OperationResult):
            message()

    def _read(self, portion: _Portion) -> Message:
        """Read as much of a portion as a moment allows: to hand one over takes as long as many a read."""
        read: dict[str, Read] = {}
        end = monotonic() + _MOMENT
        for old in portion.resources:
            read[old.urn] = self._read_one(old)
            if monotonic() > end:
                break
        return lambda: self._end(portion, read)

    def _read_one(self, old: ResourceState) -> Read:
        run = self.reader.run
        try:
            with run.reporter.step(self.op, old) if self.op else nullcontext():
                return run.providers.handle_of(old).read(old)
        except (StepError, Unsupported) as error:
            return error

    def _end(self, portion: _Portion, read: Mapping[str, Read]) -> None:
        del self._running[id(portion)]
        self.found |= read
        if rest := [old for old in portion.resources if old.urn not in read]:
            self.waiting.setdefault(portion.lane, []).extend(rest)


def _can_be_read(resource: ResourceState) -> bool:
    """Return whether there is something in the world to be compared with: not of a component, or of what is gone."""
    return resource.custom and not resource.pending_replacement and not is_provider(resource.type)
