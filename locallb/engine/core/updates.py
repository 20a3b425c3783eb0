"""Updates of parts of a stack, each of which may leave under way what hangs while others are brought about.

For one thread: it works while it waits for a part, and when it is asked to go on. The stack's lock is held as long as
anything is under way, and until the state file is written after a moment without changes: an update that follows at
once goes on in the same journal. Not here: what is to be updated when, and again after a failure.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from msgspec import Struct, field

from locallb.engine.core.core import Core, Terms
from locallb.engine.core.desired_index import DesiredIndex, Groups, plain
from locallb.engine.core.events import Op, Result, StepRecord, ignore
from locallb.engine.core.executor import ThreadExecutor
from locallb.engine.core.interrupts import Stop
from locallb.engine.core.lanes import LateLane, Parties
from locallb.engine.core.reporting import Reporter, Teller
from locallb.engine.core.session import open_core
from locallb.engine.state.errors import Cancelled, EngineError, HostRefused, LockHeld
from locallb.engine.state.values import Value
from locallb.engine.store import Store

if TYPE_CHECKING:
    from locallb.engine.provider_registry import ProviderSource

_COUNTED = (Op.CREATE, Op.UPDATE, Op.DELETE, Op.REPLACE)
GLANCE = 0.1
"""Seconds between two calls of a waiting caller's check, without other events."""
_FAILED = "the update didn't end well"


class Stack(Struct, frozen=True):
    """What is updated, and by whom."""

    project: str
    name: str
    store: Store
    sources: Mapping[str, ProviderSource]
    versions: Mapping[str, str]
    """Of the packages that have some."""
    parties: Parties
    parallel: int
    stop: Stop


class Ended(Struct, frozen=True):
    """Results of some parts: the reasons of failed ones, and the operations of all."""

    parts: frozenset[Hashable] = frozenset()
    failed: Mapping[Hashable, str] = field(default_factory=dict)
    result: Result = field(default_factory=lambda: Result(ok=True))


class _Part(Struct):
    """What is asked for: roots, and what is below them."""

    roots: frozenset[str]
    members: frozenset[str]
    blocker: str = ""
    """One of them that hadn't ended when that was looked at last."""


class Updates:
    """Of one stack. `config` reads its configuration; `bell` is called from other threads when there is news."""

    def __init__(
        self, stack: Stack, config: Callable[[], Mapping[str, str]] = dict, bell: Callable[[], None] = lambda: None
    ) -> None:
        self._stack = stack
        self._config = config
        self._bell = bell
        self._rings = False
        """Whether no caller waits here that would be woken anyway."""
        self._executor = ThreadExecutor(self._ring)
        self._wanted = self._nothing_wanted()
        self._parts: dict[Hashable, _Part] = {}
        self._ended: dict[Hashable, tuple[_Part, str]] = {}
        self._session: ExitStack | None = None
        self._core: Core | None = None
        self._reporter = Reporter(ignore, planning=False)

    @property
    def under_way(self) -> Collection[Hashable]:
        """The parts that haven't ended."""
        return self._parts.keys()

    @property
    def next_time(self) -> float | None:
        """When to go on although nothing happens, by the monotonic clock."""
        return self._core.next_time if self._core else None

    def late_lanes(self) -> Mapping[LateLane, Collection[Hashable]]:
        """Return the lanes whose party doesn't answer, or slowly, each with the parts that have something there."""
        late = self._core.late_lanes() if self._core else ()
        return {
            lane: [name for name, part in self._parts.items() if not part.members.isdisjoint(lane.urns)]
            for lane in late
        }

    @property
    def outputs(self) -> Mapping[str, Value]:
        stack = self._stack.store.peek().live.get(self._wanted.root)
        return stack.outputs if stack else {}

    def wake(self) -> None:
        """Let whoever waits for parts look whether to wait any longer; from any thread."""
        if self._core and not self._rings:
            self._executor.post(lambda: None)

    def begin(
        self,
        groups: Groups,
        parts: Mapping[Hashable, frozenset[str]],
        *,
        inspect: bool,
        outputs: Mapping[str, object],
        first: Callable[[], None],
    ) -> None:
        """Begin to bring some parts, each some roots (URNs), to what is desired, and go on with those under way.

        `first` is called once the stack is ours. Raises EngineError if it can't begin.
        """
        with self._guarded():
            if self._core and self._core.is_at_rest and not self._parts:
                self._core.forget()
            core = self._core or self._open()
            first()
            try:
                changed = core.desire(groups, plain(outputs))
            except EngineError:
                self._wanted = self._nothing_wanted()
                raise
            for part in self._parts.values():
                self._follow(core, part, changed)
            for name, roots in parts.items():
                self._parts[name] = _Part(roots, core.bring(roots, inspect=inspect))

    def give_way(self) -> None:
        """Let a command that waits for the stack have it first. Raises LockHeld, or another EngineError."""
        if self._stack.store.is_waited_for():
            self.release()
            raise LockHeld("a command waits for this stack; what is due is updated after it")

    def release(self) -> None:
        """Write the state and give the stack back if nothing is under way. Raises EngineError."""
        if self._core and self._core.is_at_rest:
            with self._guarded():
                self._close()

    def _follow(self, core: Core, part: _Part, changed: frozenset[str]) -> None:
        """Bring a part that is under way to what is desired of it now, also what was brought about already."""
        desired = {urn for root in part.roots for urn in self._wanted.below(root)}
        if not changed.isdisjoint(part.members | desired):
            part.members, part.blocker = core.bring(part.roots), ""

    def wait(self, parts: Collection[Hashable], is_enough: Callable[[], bool] = lambda: False) -> None:
        """Work until these have ended, or it is enough: asked at each event, and every so often.

        Raises EngineError if the state can't be kept.
        """
        self._work(lambda: self._parts.keys().isdisjoint(parts) or is_enough())

    def go_on(self) -> None:
        """Do what can be done without waiting. Raises as `wait` does."""
        self._work(lambda: not self._executor.has_news)

    @property
    def is_open(self) -> bool:
        """Whether the stack is held."""
        return self._core is not None

    @property
    def has_ended(self) -> bool:
        """Whether something has ended that wasn't taken."""
        return bool(self._ended)

    def take(self) -> Ended:
        """Return what has ended since it was taken last."""
        ended, self._ended = self._ended, {}
        members = frozenset(urn for part, _why in ended.values() for urn in part.members)
        steps = tuple(step for step in self._reporter.steps if step.subject.urn in members)
        self._reporter.steps = [step for step in self._reporter.steps if step.subject.urn not in members]
        self._reporter.diagnostics.clear()
        failed = {name: why for name, (_part, why) in ended.items() if why}
        result = Result(
            ok=not failed,
            changes=_changes(steps, members),
            steps=steps,
            is_whole=not self._stack.stop.is_requested(),
        )
        return Ended(frozenset(ended), failed, result)

    def close(self) -> None:
        """Wait for what runs, write the state, and give the stack back. Raises EngineError."""
        try:
            if self._session:
                with self._guarded():
                    self._close()
        finally:
            self._executor.close()

    def _work(self, until: Callable[[], bool]) -> None:
        core = self._core
        if core is None:
            return
        self._rings = False

        def is_over() -> bool:
            self._find_ended(core)
            return (core.is_at_rest and not self._executor.has_news) or until()

        with self._guarded():
            core.run(is_over, GLANCE)
            while not is_over():
                core.run(is_over, GLANCE)
            if core.is_at_rest and core.is_saved:
                self._close()
        self._rings = self._core is not None
        if self._rings and self._executor.has_news:
            self._bell()

    def _find_ended(self, core: Core) -> None:
        for name in [name for name, part in self._parts.items() if not self._is_under_way(core, part)]:
            part = self._parts.pop(name)
            self._ended[name] = part, self._why(core, part)

    @staticmethod
    def _is_under_way(core: Core, part: _Part) -> bool:
        if part.blocker and core.is_under_way(part.blocker):
            return True
        part.blocker = next((urn for urn in part.members if core.is_under_way(urn)), "")
        return bool(part.blocker)

    def _why(self, core: Core, part: _Part) -> str:
        """Return why a part isn't as desired; empty if it is."""
        remaining = sorted(urn for urn in part.members if not core.has_ended(urn))
        if not remaining:
            return ""
        failures = core.failures
        own = (failures[urn] for urn in remaining if urn in failures)
        reasons = (*own, *(error for urn in remaining if (error := core.failure_of(urn))))
        cancelled = (Cancelled(),) if self._stack.stop.is_requested() else ()
        return next((str(error) for error in (*reasons, *cancelled)), _FAILED)

    def _open(self) -> Core:
        stack, reporter, session = self._stack, Reporter(ignore, planning=False), ExitStack()
        core = session.enter_context(
            open_core(
                stack.store,
                project=stack.project,
                stack=stack.name,
                sources=stack.sources,
                parties=stack.parties,
                executor=self._executor,
                config=self._config(),
                wanted=self._wanted,
                terms=Terms(Teller(reporter), is_partial=True, parallel=stack.parallel, stop=stack.stop),
            )
        )
        self._reporter, self._session, self._core = reporter, session, core
        return core

    def _close(self) -> None:
        session, core, self._session, self._core = self._session, self._core, None, None
        if session:
            session.close()
        if core:
            self._ended |= {name: (part, self._why(core, part)) for name, part in self._parts.items()}
            self._parts.clear()

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        """Give the stack back where something can't be kept; what it came to is found out by the next update."""
        try:
            yield
        except BaseException as error:
            session, self._session, self._core = self._session, None, None
            self._parts, self._ended, self._executor = {}, {}, ThreadExecutor(self._ring)
            if session:
                session.__exit__(type(error), error, error.__traceback__)
            if isinstance(error, OSError):
                raise HostRefused(error) from error
            raise

    def _nothing_wanted(self) -> DesiredIndex:
        return DesiredIndex(self._stack.project, self._stack.name, self._stack.versions)

    def _ring(self) -> None:
        if self._rings:
            self._bell()


def _changes(steps: Collection[StepRecord], members: Collection[str]) -> Mapping[Op, int]:
    """Count what was done with resources; a replacement is one change."""
    counts: dict[Op, int] = {}
    done = [step for step in steps if not step.failed and step.op in _COUNTED]
    for step in done:
        counts[step.op] = counts.get(step.op, 0) + 1
    if same := len(members) - len({step.subject.urn for step in done}):
        counts[Op.SAME] = same
    return counts
