"""The loop's planner: the configuration as last read, its stack, and which clusters don't answer.

Not here: when to look (`schedule`), and what of the plan isn't so yet (`converge`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping

from msgspec import Struct, field

from locallb.config.settings import Settings
from locallb.engine.engine import Engine
from locallb.kubernetes.api.writes import UNREACHABLE
from locallb.model.desired import RELAY
from locallb.model.identities import ClusterName, Home, ObjectKey
from locallb.model.serving import Proxy
from locallb.planning.planned import Plan, run_types
from locallb.planning.service_rows import Observation
from locallb.planning.statuses import SilentPort
from locallb.sources.overrides import seconds_until
from locallb.sources.snapshot import SnapshotResult, unread
from locallb.sources.snapshot_cache import Changes, SnapshotCache
from locallb.sources.workspace import Workspace
from locallb.watch.events import Cause, Mark
from locallb.watch.triggers import Triggers

RETRY_DELAY = 5.0
"""Seconds between two looks at claims of the ledger that can't be read."""
_WHOLE = frozenset({Cause.START, Cause.FULL, Cause.CONFIGURATION})
_UNKNOWN = object()


class Planner(Struct):
    """For one thread. `load` reads the configuration; `mark` is for whatever the stack is followed by."""

    home: Home
    engine: Engine
    load: Callable[[], Settings]
    mark: Callable[[Mark], None]
    triggers: Triggers
    observed: Callable[[], Mapping[str, Observation | None]] = dict
    """Returns what proxies reported last, by their names; None where one didn't answer."""
    silent: Mapping[ClusterName, str] = field(default_factory=dict)
    """Live clusters that don't answer: nothing is asked of them, and nothing of theirs can be changed."""
    back: frozenset[ClusterName] = frozenset()
    """Clusters that answer now, but didn't at the previous pass."""
    _workspace: Workspace | None = None
    _state: object = _UNKNOWN
    """The version of the state that is known."""

    @property
    def settings(self) -> Settings:
        """The configuration as last read; for who has opened it, as all that follows."""
        return self._opened().settings

    def stale(self) -> Mapping[ClusterName, str]:
        """Return which sources count as last read, and why."""
        return self._cache().stale()

    def retry(self) -> Mapping[ClusterName, float]:
        """Return which sources are to be read again without an event, and when."""
        return self._cache().retry()

    def unready(self) -> bool:
        """Return whether a cluster is in the making."""
        return self._cache().unready()

    def open(self, marks: Collection[Mark], *, overtaken: bool = False) -> bool:
        """Make ready for a look; return whether the state, or what it says of runs, may be another than is known.

        `overtaken`: another process has written the state. Raises what `load` does.
        """
        is_other = overtaken or self.engine.state_stamp() != self._state
        # By the state the configuration has components of a program, which other engines remove without a word.
        if self._workspace is None or is_other or any(mark.cause in _WHOLE for mark in marks):
            self.configure()
        self.triggers.follow(self.settings)  # each time: it may have broken off at its beginning
        if not marks:  # it is time to try again what failed: the host may be different
            self.invalidate_host_facts()
        back = any(mark.cause is Cause.RUNTIME and mark.subject for mark in marks)
        return back or is_other

    def configure(self) -> None:
        """Read the configuration. Raises what `load` does."""
        settings = self.load()
        if self._workspace:
            self._workspace = self._workspace.configured(settings)
        else:
            cache = SnapshotCache(self.home, settings, self.engine.resources, self._has_news)
            self._workspace = Workspace(self.home, settings, cache=cache, observe=self._reported)

    def read_and_plan(
        self, marks: Collection[Mark], down: Collection[str], silent: Collection[SilentPort]
    ) -> tuple[SnapshotResult, Plan]:
        """Read what the marks are about, and plan while the proxies `down` can't be brought back.

        Raises what `Workspace.read_and_plan` does.
        """
        before = self.stale().keys()
        result, plan = self._opened().read_and_plan(changes_of(marks), down, silent, keep=True)
        stale, access = self.stale(), result.snapshot.access
        self.back = frozenset(before - stale.keys())
        self.silent = {name: why for name, why in stale.items() if name in access}
        UNREACHABLE.put({access[name]: why for name, why in self.silent.items()})
        return result, plan

    def find_refusals(self, plan: Plan, keys: Collection[ObjectKey]) -> bool:
        """Return whether Envoy refuses objects of these load balancers, which the next plan does without."""
        return self._opened().find_refusals(plan, keys)

    def updated(self) -> None:
        """Note that the stack changed, and follow the runs that the state has now."""
        self._cache().updated()
        state = self.engine.state_stamp()  # before it is read: what somebody writes now is seen at the next look
        types = {*run_types(), RELAY}
        self.triggers.runs([resource for resource in self.engine.resources() if resource.type in types])
        self._state = state

    def ended(self) -> None:
        """Note that an update ended: one that only looked left the state, and the runs in it, as they were."""
        if self.engine.state_stamp() != self._state:
            self.updated()

    def invalidate_state(self) -> None:
        """Note that the state may say anything."""
        self._state = _UNKNOWN

    def invalidate_host_facts(self) -> None:
        """Note that something failed that should not have: the host may be different."""
        self._cache().invalidate_host_facts()

    def stop(self) -> None:
        self.triggers.stop()
        if self._workspace:
            self._cache().stop()
        UNREACHABLE.put({})

    def _opened(self) -> Workspace:
        if self._workspace is None:
            raise AssertionError
        return self._workspace

    def _cache(self) -> SnapshotCache:
        cache = self._opened().cache
        if cache is None:
            raise AssertionError
        return cache

    def _reported(self, proxies: Iterable[Proxy]) -> Mapping[str, Observation]:
        observed = self.observed()
        return {proxy.name: answer for proxy in proxies if (answer := observed.get(proxy.name))}

    def _has_news(self, cluster: ClusterName) -> None:
        self.mark(Mark(Cause.SOURCE, cluster))


def next_check(result: SnapshotResult) -> float | None:
    """Return when what was read isn't so any more, by the monotonic clock; None where that tells by itself.

    The first order is over then, or it is time to try again what could not be read of the ledger.
    """
    remaining = [seconds_until(result.ends)] if result.ends else []
    remaining += [RETRY_DELAY] if any(unread(result.snapshot.claims)) else []
    return time.monotonic() + min(remaining) if remaining else None


def changes_of(marks: Collection[Mark]) -> Changes:
    """Return what the marks say may be different of what is read."""
    causes = {mark.cause for mark in marks}
    return Changes(
        everything=not causes.isdisjoint(_WHOLE),
        sources=frozenset(mark.subject for mark in marks if mark.cause in {Cause.SOURCE, Cause.KUBECONFIG}),
        moved=Cause.KUBECONFIG in causes,
        found=Cause.FOUND_CLUSTERS in causes,
        maker=any(mark.cause is Cause.FOUND_CLUSTERS and mark.subject for mark in marks),
        routes=Cause.ROUTES in causes,
    )
