"""A stack of this host, read and planned: the only path from its configuration to a plan.

For the program, for commands and for the loop. With a cache, only possible changes are read and planned again, with the
same result. Not here: the configuration itself, the time of a pass, and the use of a plan.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial

from msgspec import Struct, field
from msgspec.structs import replace

from locallb.config.settings import Settings
from locallb.kubernetes.object_parsing import AnyStatus
from locallb.kubernetes.status import ObservedStatus
from locallb.model.identities import Home, ObjectKey
from locallb.model.memory import AnyMemo, Memo
from locallb.model.serving import Proxy
from locallb.planning.plan import make_plan
from locallb.planning.planned import Plan, placements_of
from locallb.planning.refused import RefusedObjects
from locallb.planning.service_rows import Observation
from locallb.planning.statuses import SilentPort, mark_unanswered, published_silence, withdraw
from locallb.sources.held import HeldResource
from locallb.sources.refusals import find_refusals, read_refusals
from locallb.sources.snapshot import ReadingAndPlan, next_to, read_snapshot
from locallb.sources.snapshot_cache import Changes, SnapshotCache

EVERYTHING = Changes(everything=True)


class Handed(Struct):
    """A recent snapshot and plan for readers without a cache, and the ones they used."""

    planned: ReadingAndPlan | None = None
    """None: they read and plan themselves."""
    used: ReadingAndPlan | None = None
    """None until the first read."""
    settings: Settings | None = None
    """The configuration by which the used one was planned; None where it is the stack's."""
    whole: bool = True
    """Whether all of the stack is updated: policies of the stack don't stop an update of a part."""


_HANDED: ContextVar[Handed | None] = ContextVar("handed", default=None)


@contextmanager
def handing(handed: Handed) -> Iterator[None]:
    """Let readers without a cache use what was read and planned a moment ago, if it was, and read nothing.

    Tasks that are begun meanwhile keep `handed`, and may note later what they used.
    """
    token = _HANDED.set(handed)
    try:
        yield
    finally:
        _HANDED.reset(token)


def updates_whole_stack() -> bool:
    """Return whether the update of this context is of all of its stack, as far as is known."""
    handed = _HANDED.get()
    return handed is None or handed.whole


class Workspace(Struct, frozen=True):
    """The identity, configuration and cached data of a stack. For one thread."""

    home: Home
    settings: Settings
    resources: Callable[[], Iterable[HeldResource]] = tuple
    """Returns what its state has; nothing if another engine keeps it, or a cache uses ours."""
    cache: SnapshotCache | None = None
    """Of this configuration; without one everything is read each time."""
    glance: bool = False
    """Without a cache: as `read_snapshot` has it."""
    observe: Callable[[Iterable[Proxy]], Mapping[str, Observation]] = lambda _proxies: {}
    """Returns what proxies report, by their names; those of which that isn't known are missing."""
    others: Sequence[ReadingAndPlan] = ()
    """Parts of the same stack that are read and planned apart, and keep what they have."""
    _memo: AnyMemo = field(default_factory=Memo)
    _planned: Memo[Plan] = field(default_factory=Memo)
    _reported: Memo[Plan] = field(default_factory=Memo)
    _refused: RefusedObjects = field(default_factory=RefusedObjects)

    def configured(self, settings: Settings) -> Workspace:
        """Return the stack with this configuration; what is followed and stays is followed on."""
        if settings == self.settings:
            return self
        return replace(self, settings=settings, cache=self.cache and self.cache.configured(settings))

    def read_and_plan(
        self,
        changes: Changes = EVERYTHING,
        down: Collection[str] = frozenset(),
        silent: Collection[SilentPort] = frozenset(),
        *,
        keep: bool,
    ) -> ReadingAndPlan:
        """Return what was read and the plan made of it, while the proxies `down` can't be brought back.

        Statuses in clusters say that no backend of the `silent` ports takes connections. `keep` remembers what the
        sources say for a time when they can't be read.

        Raises:
            SourceError: if a source can't be read and there is nothing to go by instead.
            ClientError: if the host or the ledger can't be read.

        """
        handed = None if self.cache else _HANDED.get()
        if handed:
            handed.used = handed.planned or self._read_and_plan(changes, down, silent, keep=keep)
            return handed.used
        return self._read_and_plan(changes, down, silent, keep=keep)

    def read_anew(self, *, keep: bool) -> ReadingAndPlan:
        """Read and plan whatever was handed over, which was by another configuration; note that this was used."""
        handed = _HANDED.get()
        planned = self._read_and_plan(EVERYTHING, frozenset(), frozenset(), keep=keep)
        if handed:
            handed.used, handed.settings = planned, self.settings
        return planned

    def _read_and_plan(
        self, changes: Changes, down: Collection[str], silent: Collection[SilentPort], *, keep: bool
    ) -> ReadingAndPlan:
        cache = self.cache
        if cache:
            result = cache.read(changes)
        else:
            result = read_snapshot(self.home, self.settings, self.resources(), keep=keep, glance=self.glance)
        snapshot = self._refused.of(next_to(result.snapshot, self.others), read_refusals(self.home))
        result = result if snapshot is result.snapshot else replace(result, snapshot=snapshot)
        plan = self._planned.of(None, partial(make_plan, memo=self._memo), result.snapshot, self.settings)
        silent = frozenset(silent) | self._still_silent(plan, result.observed_statuses)
        return result, self._reported.of(None, _as_observed, plan, down, silent)

    def _still_silent(self, plan: Plan, stated: Mapping[ObjectKey, AnyStatus]) -> frozenset[SilentPort]:
        """Return the ports that conditions in clusters call silent, and of which no proxy reports otherwise."""
        conditions = {
            key: status.serving
            for key, status in stated.items()
            if isinstance(status, ObservedStatus) and status.serving and status.serving.status == "False"
        }
        published = [
            (placement.proxy, ports)
            for placement in placements_of(plan, conditions)
            if (ports := published_silence(placement, conditions[placement.key]))
        ]
        if not published:
            return frozenset()
        names = {name for name, _ in published}
        observed = self.observe([each.proxy for each in plan.proxies if each.proxy.name in names])
        healthy = {name: answer.healthy for name, answer in observed.items()}
        return frozenset(
            port for name, ports in published for port in ports if not healthy.get(name, {}).get(port.upstream)
        )

    def find_refusals(self, plan: Plan, keys: Iterable[ObjectKey]) -> bool:
        """Return whether Envoy refuses objects of these load balancers that weren't known; the next plan does without.

        `plan` is the one that was made last.
        """
        read = self._refused.read
        return read is not None and bool(
            find_refusals(self.home, self.settings, read, plan, keys, self._refused.changed)
        )


def _as_observed(plan: Plan, down: Collection[str], silent: Collection[SilentPort]) -> Plan:
    """Return the plan that tells clusters what was observed of proxies and backends."""
    return withdraw(mark_unanswered(plan, silent), down)
