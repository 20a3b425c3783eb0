"""A core at work on one stack: lock, state, what an earlier run left, providers, threads."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from threading import BoundedSemaphore

from locallb.engine.backend.store import Notice, Store
from locallb.engine.core.core import Core
from locallb.engine.core.decisions import Decider, LaneOf, by_urn
from locallb.engine.core.executor import Executor
from locallb.engine.core.lanes import Lanes, Shape
from locallb.engine.core.operations import Operation, Outcome
from locallb.engine.core.wanted import Wanted
from locallb.engine.deploy.events import ignore
from locallb.engine.deploy.interrupts import Stop
from locallb.engine.deploy.provider_resources import ProviderResources
from locallb.engine.deploy.reporter import Reporter
from locallb.engine.deploy.scope import EVERYTHING
from locallb.engine.deploy.steps import Steps
from locallb.engine.providers.registry import Providers, ProviderSource

LAST_WAIT = 12.0
"""Seconds for which the end waits for what was begun: a provider's call has a limit of its own, below that."""


@contextmanager
def open_core(  # noqa: PLR0913 - what a stack is, and what the outside is
    store: Store,
    *,
    project: str,
    stack: str,
    sources: Mapping[str, ProviderSource],
    lane_of: LaneOf,
    executor: Executor,
    shape_of: Callable[[str], Shape] = lambda _lane: Shape(),
    config: Mapping[str, str] | None = None,
    versions: Mapping[str, str] | None = None,
    notice: Notice = lambda _text: None,
    told: Callable[[Operation, Outcome | None], None] = lambda _operation, _outcome: None,
) -> Iterator[Core]:
    """Hold the stack's lock and give its core; at the end what runs is waited for and the state written.

    What doesn't end stays under way in the state, and the next run finds out what came of it. `told` hears of each
    operation when it begins and when it has ended. Raises EngineError.
    """
    with store.session(notice) as recorder:
        providers = Providers(sources)
        steps = Steps(recorder, Reporter(ignore, planning=False), BoundedSemaphore(1), Stop(), preview=False)
        resources = ProviderResources(project, stack, EVERYTHING, steps, providers, config or {})
        left = by_urn(recorder.snapshot.pending)
        wanted = Wanted(project, stack, versions or {})
        decider = Decider(project, stack, recorder, wanted, resources, lane_of, unsettled={}, left=left)
        core = Core(decider, Lanes(shape_of), executor, told)
        try:
            yield core
            core.stop()
            core.run(lambda: core.is_stopped, LAST_WAIT)
        finally:
            providers.loops.close()
