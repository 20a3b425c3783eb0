"""The core for a command: it works until everything is as desired, or can't be without another run."""

from collections.abc import Mapping

from locallb.engine.core.core import Core, Terms
from locallb.engine.core.decisions import LaneOf
from locallb.engine.core.executor import ThreadExecutor
from locallb.engine.core.session import core_of
from locallb.engine.core.telling import Teller
from locallb.engine.core.wanted import Wanted
from locallb.engine.deploy.events import Severity
from locallb.engine.deploy.interrupts import waking
from locallb.engine.deploy.run import Run
from locallb.engine.state.resource import ResourceState


def own_lane(resource: ResourceState) -> str:
    """Let a resource wait for nobody but those that it refers to, or that refer to it."""
    return resource.urn


def destroy(run: Run, lane_of: LaneOf = own_lane) -> None:
    """Delete everything that the stack has. Raises Cancelled."""
    steps, executor = run.steps, ThreadExecutor()
    terms = Terms(Teller(run.reporter), tries_again=False, parallel=run.parallel, stop=steps.stop)
    wanted = Wanted(run.providers.project, run.providers.stack, {})
    try:
        with (
            waking(lambda: executor.post(lambda: None)),
            core_of(run.providers, wanted, lane_of, executor, terms=terms) as core,
        ):
            core.desire_nothing()
            core.run(lambda: core.is_at_rest)
            _conclude(run, core)
    finally:
        executor.close()


def _conclude(run: Run, core: Core) -> None:
    """Tell why not everything is as desired, where no operation told it."""
    snapshot = core.snapshot
    run.reporter.broken |= {snapshot.root_of(urn) for urn in core.failures}
    if core.is_settled:
        return
    run.steps.go_on()
    for circle in circles_of(core.waiting):
        what = f"{' refers to '.join((*circle, circle[0]))}, so none of them can be deleted first"
        run.reporter.say(Severity.ERROR, f"{what}; run `pulumi state delete` for one of them", circle[0])


def circles_of(waiting: Mapping[str, str]) -> list[list[str]]:
    """List those that wait for each other, each circle once."""
    circles: list[list[str]] = []
    seen: set[str] = set()
    for start in sorted(waiting):
        way: dict[str, None] = {}
        urn: str | None = start
        while urn is not None and urn not in seen:
            seen.add(urn)
            way[urn] = None
            urn = waiting.get(urn)
        if urn in way:
            passed = [*way]
            circles.append(passed[passed.index(urn) :])
    return circles
