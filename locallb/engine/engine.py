"""The engine: previews, updates, refreshes and destroys one stack of a Pulumi project, in this process.

It keeps the stack's state in memory between runs; use one Engine for many. One run at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from math import inf
from time import monotonic
from typing import TYPE_CHECKING

from locallb.engine.core.declared import EVERYTHING, Declared, Scope
from locallb.engine.core.events import Listener, Result, Severity, ignore
from locallb.engine.core.interrupts import Stop, interruptible
from locallb.engine.core.lanes import Parties
from locallb.engine.core.once import Once
from locallb.engine.core.provider_resources import ProviderResources
from locallb.engine.core.reads import Reader
from locallb.engine.core.reporting import Reporter
from locallb.engine.core.session import Run
from locallb.engine.core.updates import Stack as CoreStack
from locallb.engine.core.updates import Updates
from locallb.engine.provider_registry import Providers
from locallb.engine.state.errors import Cancelled, EngineError, HostRefused
from locallb.engine.state.project import Project, load_config
from locallb.engine.state.resource import ResourceState
from locallb.engine.state.urns import stack_urn
from locallb.engine.state.values import Value
from locallb.engine.store import Recorder, Store

if TYPE_CHECKING:
    from locallb.engine.program_update import Program
    from locallb.engine.provider_registry import ProviderSource

PARALLEL = 16  # operations at a time, unless the engine is told otherwise


_Work = Callable[[Run], Mapping[str, Value]]


def _nothing() -> None:
    """Do nothing."""


class Engine:
    """One stack of a project.

    `providers` gives for each package a provider object, or a function that makes one (needed where a program declares
    several providers of a package). `on_event` is told everything that happens, from several threads, one at a time.
    At most `parallel` operations are under way at a time.
    """

    def __init__(  # noqa: PLR0913 - one engine has one of each
        self,
        project: Project,
        stack: str,
        providers: Mapping[str, ProviderSource],
        *,
        on_event: Listener = ignore,
        store: Store | None = None,
        parallel: int = PARALLEL,
        parties: Parties = Parties(),  # noqa: B008 - it is frozen
    ) -> None:
        self._project = project
        self._stack = stack
        self._sources = providers
        self._listener = on_event
        self._parallel = parallel
        self._parties = parties
        self._store = store or Store(project.backend, project.name, stack)
        self._stop = Stop()

    def cancel(self) -> None:
        """Ask to finish what is begun and start nothing more, in this run and any later one; from any thread."""
        self._stop.ask()

    def resources(self) -> tuple[ResourceState, ...]:
        """Return the stack's resources as the state has them; empty without a state."""
        return self._store.peek().in_order()

    def state_stamp(self) -> object:
        """Return a stamp that differs once this process has changed the state, or another one has written it."""
        return self._store.stamp()

    def preview(self, program: Program, *, refresh: bool | None = None, scope: Scope = EVERYTHING) -> Result:
        """Return what `up` would do. Writes nothing anywhere."""
        return self._with_program(program, scope, refresh=refresh, preview=True)

    def up(self, program: Program, *, refresh: bool | None = None, scope: Scope = EVERYTHING) -> Result:
        """Update the stack to what the program declares.

        `refresh` None means as the project says. Failures of resources and of the program are in the result.

        Raises EngineError when the run can't begin or its outcome can't be kept (lock, state, configuration), or when
        a scoped update met a change that concerns everything (FullScopeNeeded).
        """
        return self._with_program(program, scope, refresh=refresh, preview=False)

    def bring(
        self,
        declare: Callable[[], Declared],
        *,
        preview: bool = False,
        refresh: bool | None = None,
        scope: Scope = EVERYTHING,
    ) -> Result:
        """Update the stack to what is declared as data, once the stack is this run's; otherwise as `up`, or `preview`.

        What keeps `declare` from declaring anything is an EngineError.
        """
        config = load_config(self._project, self._stack)

        def work(run: Run) -> Mapping[str, Value]:
            self._refresh_first(run, refresh)
            try:
                declared = declare()
            except EngineError as error:
                run.reporter.is_whole = False
                run.reporter.log(Severity.ERROR, str(error))
                return {}
            Once(run, self._parties).bring(declared)
            return declared.outputs

        return self._run(work, scope, config, preview=preview)

    def refresh(self, *, preview: bool = False) -> Result:
        """Update the state to what the resources are in the world."""

        def work(run: Run) -> Mapping[str, Value]:
            Reader(run, self._parties).refresh_everything()
            return {}

        return self._run(work, EVERYTHING, {}, preview=preview)

    @property
    def readings(self) -> int:
        """How often the state was read from its file: more than before once another process has written it."""
        return self._store.readings

    def read_stamp(self) -> object:
        """Return which writing of the state this engine knows; None where that isn't all there is."""
        return None if self._store.is_unfinished() else self._store.read_stamp

    def drifted(
        self,
        types: Collection[str] | None = None,
        scope: Scope = EVERYTHING,
        *,
        longest: float = inf,
        without: Collection[str] = (),
    ) -> frozenset[str]:
        """Return the roots (URNs) below which a resource isn't, or may not be, what the state says.

        What can't be read for `longest` seconds may not be, and isn't waited for once nothing else is. Nothing is asked
        of the parties of the lanes in `without`.
        Of these types, or of any; in the scope also one whose operation was broken off, or that is to be deleted, and
        those that refer to any of them: a refresh takes a reference away with what is gone.
        Changes neither the world nor the state. Raises EngineError when the state can't be read.
        """
        roots: set[str] = set()

        def work(run: Run) -> Mapping[str, Value]:
            snapshot = run.recorder.snapshot
            members = snapshot.in_order_live() if scope.roots is None else snapshot.members_of(scope.roots)
            inspected = [
                resource
                for resource in members
                if (types is None or resource.type in types) and self._parties.lane_of(resource) not in without
            ]
            drifted = [*Reader(run, self._parties, longest).differing(inspected)]
            roots.update(snapshot.root_of(resource.urn) for resource in drifted)
            remaining = [*snapshot.condemned.values(), *(operation.resource for operation in snapshot.pending.values())]
            if types is None:
                roots.update(snapshot.root_of(resource.parent or resource.urn) for resource in remaining)
                users = (user for resource in drifted for user in snapshot.users_of(resource.urn))
                roots.update(snapshot.root_of(user.urn) for user in users)
            return {}

        self._run(work, scope, {}, preview=True, copied=False)
        return frozenset(root for root in roots if scope.covers(root))

    def unfinished(self) -> frozenset[str]:
        """Return the roots (URNs) below which the state says that an operation was broken off."""
        snapshot = self._store.peek()
        begun = (operation.resource for operation in snapshot.pending.values())
        return frozenset(snapshot.root_of(resource.parent or resource.urn) for resource in begun)

    def destroy(self, *, preview: bool = False, refresh: bool | None = None) -> Result:
        """Delete everything that the stack has; needs no program. `refresh` None means as the project says."""

        def work(run: Run) -> Mapping[str, Value]:
            self._refresh_first(run, refresh)
            Once(run, self._parties).destroy()
            return {}

        return self._run(work, EVERYTHING, {}, preview=preview)

    def updates(
        self,
        versions: Mapping[str, str],
        bell: Callable[[], None] = _nothing,
    ) -> Updates:
        """Return what updates parts of the stack from data; `versions` are those of packages that have some."""
        stack = CoreStack(
            self._project.name,
            self._stack,
            self._store,
            self._sources,
            versions,
            self._parties,
            self._parallel,
            self._stop,
        )
        return Updates(stack, lambda: load_config(self._project, self._stack), bell)

    def _with_program(self, program: Program, scope: Scope, *, refresh: bool | None, preview: bool) -> Result:
        config = load_config(self._project, self._stack)

        def work(run: Run) -> Mapping[str, Value]:
            from locallb.engine.program_update import Setting, Update  # noqa: PLC0415 - loads the SDK

            self._refresh_first(run, refresh)
            setting = Setting(self._project.name, self._stack, self._project.root, config, preview)
            update = Update(program, setting, run.reporter)
            Once(run, self._parties).follow(update.register)
            return update.outputs

        return self._run(work, scope, config, preview=preview)

    def _refresh_first(self, run: Run, refresh: bool | None) -> None:  # noqa: FBT001 - as the commands have it
        """Bring the state up to the world where that is asked for, by the project if by nobody else."""
        if self._project.refresh_always if refresh is None else refresh:
            snapshot, roots = run.recorder.snapshot, run.scope.roots
            Reader(run, self._parties).refresh(
                snapshot.in_order_live() if roots is None else [*snapshot.members_of(roots)]
            )

    @contextmanager
    def _recorder(self, reporter: Reporter, *, preview: bool, copied: bool) -> Iterator[Recorder]:
        if preview:
            yield Recorder(self._store.peek().copy() if copied else self._store.peek())
        else:
            with self._store.session(lambda text: reporter.log(Severity.INFO, text)) as recorder:
                yield recorder

    def _run(
        self, work: _Work, scope: Scope, config: Mapping[str, str], *, preview: bool, copied: bool = True
    ) -> Result:
        """Do it, in a preview to a copy of the state, unless all that is done is to read."""
        start = monotonic()
        reporter = Reporter(self._listener, preview)
        providers = Providers(self._sources)
        stop = Stop(self._stop)
        try:
            with interruptible(stop), self._recorder(reporter, preview=preview, copied=copied) as recorder:
                resources = ProviderResources(
                    self._project.name, self._stack, scope, recorder, reporter, providers, config, preview
                )
                run = Run(reporter, recorder, resources, scope, self._parallel, stop, preview)
                outputs = self._guarded(work, run)
        except OSError as error:
            raise HostRefused(error) from error
        finally:
            providers.close()
        return Result(
            ok=not reporter.failed(),
            changes=reporter.counts(),
            outputs=outputs,
            diagnostics=tuple(reporter.diagnostics),
            steps=tuple(reporter.steps),
            duration=monotonic() - start,
            interrupted=stop.is_requested() and reporter.failed(),
            broken=frozenset(reporter.broken),
            is_whole=reporter.is_whole,
        )

    def _guarded(self, work: _Work, run: Run) -> Mapping[str, Value]:
        """Work; an interrupt is told like a failure. Gives the stack's outputs."""
        planned: Mapping[str, Value] = {}
        try:
            run.go_on()
            planned = work(run)
        except Cancelled as error:
            run.reporter.is_whole = False
            run.reporter.log(Severity.ERROR, str(error))
        if run.is_preview:
            return planned
        live = run.recorder.snapshot.live
        stack = live.get(stack_urn(self._project.name, self._stack))
        return stack.outputs if stack else {}
