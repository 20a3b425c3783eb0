"""The core for a command: it works until everything is as desired, or can't be without another run."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from msgspec import Struct

from locallb.engine.core.core import Core, Terms
from locallb.engine.core.declared import Declared
from locallb.engine.core.desired_index import DesiredIndex, Goals
from locallb.engine.core.events import Severity
from locallb.engine.core.executor import PreviewExecutor, ThreadExecutor
from locallb.engine.core.interrupts import waking
from locallb.engine.core.lanes import Parties
from locallb.engine.core.reporting import Teller
from locallb.engine.core.session import Run, core_of
from locallb.engine.state.resource import ResourceState


class Once(Struct, frozen=True):
    """One run of the core on a stack."""

    run: Run
    parties: Parties

    def destroy(self) -> None:
        """Delete everything that the stack has. Raises Cancelled."""
        wanted = self._wanted(Declared(()))
        with self._core(wanted) as (core, _executor):
            core.desire_nothing()
            core.run(lambda: core.is_at_rest)
            self._conclude(core, wanted)

    def bring(self, declared: Declared) -> None:
        """Bring the stack, as far as the scope goes, to what is declared: at first what is desired, then the rest.

        What isn't desired stays where something of the same root failed: it may be what the failed part still uses.
        Raises Cancelled, FullScopeNeeded.
        """
        for severity, sentence in declared.remarks:
            self.run.reporter.log(severity, sentence)
        wanted = self._wanted(declared)
        with self._core(wanted) as (core, _executor):
            core.spare(lambda _resource: True)
            core.desire({group.root: group for group in declared.groups}, declared.outputs)
            core.run(lambda: core.is_at_rest)
            self._remove(core, wanted)

    def follow(self, register: Callable[[Core, Goals, ThreadExecutor], bool]) -> None:
        """Bring the stack to what `register` adds to the goals, while it lets the core work; it says if that is all.

        What an earlier run broke off is found out before. Only if that is all, the rest goes, as above.
        Raises Cancelled, FullScopeNeeded.
        """
        run = self.run
        goals = Goals(run.providers.project, run.providers.stack, is_preview=run.is_preview)
        with self._core(goals) as (core, executor):
            core.spare(lambda _resource: True)
            core.run(lambda: core.is_at_rest)
            run.go_on()
            try:
                run.reporter.is_whole = register(core, goals, executor)
            finally:
                run.reporter.broken |= self._broken(core, goals)
            if run.reporter.is_whole:
                core.complete()
                # What a program registers only once it knows an output is missing where that failed.
                self._remove(core, goals, is_doubtful=any(map(core.is_wanted, core.failures)))
            else:
                self._conclude(core, goals)

    def _wanted(self, declared: Declared) -> DesiredIndex:
        run = self.run
        return DesiredIndex(run.providers.project, run.providers.stack, declared.versions, is_preview=run.is_preview)

    @staticmethod
    def _broken(core: Core, wanted: DesiredIndex) -> set[str]:
        """Return the roots below which something that is desired failed, or waits for what failed."""
        return {wanted.root_of(urn) for urn in core.unsettled if core.is_wanted(urn)}

    def _remove(self, core: Core, wanted: DesiredIndex, *, is_doubtful: bool = False) -> None:
        """Delete what isn't desired, and report what stays; where that is doubtful, only old instances are deleted."""
        broken, live = self._broken(core, wanted), core.snapshot.live
        self.run.reporter.broken |= broken
        core.spare(
            lambda resource: (
                self._remains(resource, broken, core) or (is_doubtful and live.get(resource.urn) is resource)
            )
        )
        core.run(lambda: core.is_at_rest)
        self._conclude(core, wanted)

    @contextmanager
    def _core(self, wanted: DesiredIndex) -> Iterator[tuple[Core, ThreadExecutor]]:
        run, preview = self.run, self.run.is_preview
        executor = PreviewExecutor() if preview else ThreadExecutor()
        terms = Terms(
            Teller(run.reporter),
            parallel=run.parallel,
            stop=run.stop,
            is_preview=preview,
            trusts_made=True,
        )
        at_work = core_of(run.providers, wanted, self.parties, executor, terms=terms)
        try:
            with waking(lambda: executor.post(lambda: None)), at_work as core:
                yield core, executor
        finally:
            executor.close()

    def _remains(self, resource: ResourceState, broken: set[str], core: Core) -> bool:
        root = core.snapshot.root_of_any(resource)
        return root in broken or not self.run.scope.covers(root)

    def _is_left_out(self, urn: str, core: Core, wanted: DesiredIndex) -> bool:
        """Return whether a desired resource is absent and outside the scope."""
        is_absent = core.is_wanted(urn) and urn not in core.snapshot.live
        return is_absent and not self.run.scope.covers(wanted.root_of(urn))

    def _conclude(self, core: Core, wanted: DesiredIndex) -> None:
        """Report why the stack differs from the desired one, if no operation reported it. Raises Cancelled."""
        reporter, snapshot = self.run.reporter, core.snapshot
        there = (urn for urn in core.failures if urn in snapshot.live or not core.is_wanted(urn))
        reporter.broken |= {snapshot.root_of(urn) for urn in there}
        remaining = [*core.unsettled]
        if remaining:
            self.run.go_on()
        inside = (urn for urn in remaining if core.is_wanted(urn) and self.run.scope.covers(wanted.root_of(urn)))
        for urn in sorted(inside):
            needs = (one for one in sorted(wanted.requirements(urn)) if not wanted.only_follows(urn, one))
            if absent := next((one for one in needs if self._is_left_out(one, core, wanted)), ""):
                what = f"{urn} is left out: it needs {absent}, which isn't there and is outside the scope"
                reporter.log(Severity.ERROR, f"{what}; include that, or update everything", urn)
        for circle in circles_of(core.waiting):
            what = f"{' refers to '.join((*circle, circle[0]))}, so none of them can be deleted first"
            reporter.log(Severity.ERROR, f"{what}; run `pulumi state delete` for one of them", circle[0])
        unwanted = {urn: snapshot.live[urn] for urn in remaining if urn in snapshot.live and not core.is_wanted(urn)}
        for urn in (resource.urn for resource in snapshot.sort(unwanted)):
            users = (*(user.urn for user in snapshot.users_of(urn)), *filter(None, [core.waiting.get(urn)]))
            staying = [user for user in users if user not in unwanted]
            if staying and not reporter.failed():  # otherwise a failure explains it
                reporter.log(Severity.ERROR, f"{urn} can't be deleted: {staying[0]}, which stays, refers to it", urn)


def circles_of(waiting: Mapping[str, str]) -> list[list[str]]:
    """List cycles of resources that wait for each other, each once."""
    circles: list[list[str]] = []
    observed: set[str] = set()
    for start in sorted(waiting):
        way: dict[str, None] = {}
        urn: str | None = start
        while urn is not None and urn not in observed:
            observed.add(urn)
            way[urn] = None
            urn = waiting.get(urn)
        if urn in way:
            passed = [*way]
            circles.append(passed[passed.index(urn) :])
    return circles
