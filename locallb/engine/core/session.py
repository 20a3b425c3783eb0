"""The context of a run of the engine, and a core at work on one stack: lock, state, providers, threads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from msgspec import Struct

from locallb.engine.core.core import Core, Terms
from locallb.engine.core.decisions import Decider, broken_off
from locallb.engine.core.declared import EVERYTHING, Scope
from locallb.engine.core.desired_index import DesiredIndex
from locallb.engine.core.events import ignore
from locallb.engine.core.executor import Executor
from locallb.engine.core.interrupts import Stop
from locallb.engine.core.lanes import Lanes, Parties
from locallb.engine.core.provider_resources import ProviderResources
from locallb.engine.core.reporting import Reporter
from locallb.engine.provider_registry import Providers
from locallb.engine.state.errors import Cancelled, FullScopeNeeded
from locallb.engine.store import Notice, Recorder, Store

if TYPE_CHECKING:
    from locallb.engine.provider_registry import ProviderSource

LAST_WAIT = 12.0
"""Seconds for which the end waits for what was begun: a provider's call has a limit of its own, below that."""


class Run(Struct, frozen=True):
    """One preview, update, refresh, look or destruction."""

    reporter: Reporter
    recorder: Recorder
    providers: ProviderResources
    scope: Scope
    parallel: int
    """Operations that may be under way at a time."""
    stop: Stop
    is_preview: bool

    def go_on(self) -> None:
        """Raise Cancelled after an interrupt."""
        if self.stop.is_requested():
            raise Cancelled


@contextmanager
def open_core(  # noqa: PLR0913 - what a stack is, and what the outside is
    store: Store,
    *,
    project: str,
    stack: str,
    sources: Mapping[str, ProviderSource],
    parties: Parties,
    executor: Executor,
    config: Mapping[str, str] | None = None,
    wanted: DesiredIndex | None = None,
    notice: Notice = lambda _text: None,
    terms: Terms = Terms(),  # noqa: B008 - it is frozen
) -> Iterator[Core]:
    """Hold the stack's lock and give its core; `wanted` is what was desired before. Raises EngineError."""
    desired = wanted or DesiredIndex(project, stack, {})
    providers = Providers(sources)
    try:
        with store.session(notice) as recorder:
            reporter = Reporter(ignore, planning=False)
            resources = ProviderResources(project, stack, EVERYTHING, recorder, reporter, providers, config or {})
            with core_of(resources, desired, parties, executor, terms=terms) as core:
                yield core
    finally:
        providers.close()


@contextmanager
def core_of(
    resources: ProviderResources,
    wanted: DesiredIndex,
    parties: Parties,
    executor: Executor,
    *,
    terms: Terms = Terms(),  # noqa: B008 - as above
) -> Iterator[Core]:
    """Give the core of a stack whose lock is held; at the end what runs is waited for.

    What doesn't end in time stays under way in the state, and the next run finds out what came of it.
    """
    recorder = resources.recorder
    remaining = {} if terms.is_preview else broken_off(recorder.snapshot, resources.scope)
    decider = Decider(
        resources.project,
        resources.stack,
        recorder,
        wanted,
        resources,
        parties.lane_of,
        unsettled={},
        remaining=remaining,
    )
    core = Core(decider, Lanes(parties.shape_of), executor, terms)
    refused: FullScopeNeeded | None = None
    try:
        try:
            yield core
        except FullScopeNeeded as error:  # how ends what runs is noted all the same
            refused = error
        core.stop()
        core.run(lambda: core.is_stopped, LAST_WAIT)
    except Exception:
        core.drain(LAST_WAIT)
        raise
    if refused:
        raise refused
