"""Converges a stack to its plan, load balancer by load balancer: what differs, in updates of a few.

What was applied is remembered by digest, after a start by what the state says. Not here: when, in which order (`work`),
and what is planned.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from functools import partial

from msgspec import Struct, field

from components.stack import declare, declare_some
from locallb.desired.shown import exports, exports_the_same
from locallb.engine.deploy.events import Result
from locallb.engine.deploy.scope import Scope, only
from locallb.engine.engine import Engine
from locallb.engine.state.errors import FullScopeNeeded
from locallb.engine.state.urns import name_of, root_urn
from locallb.kubernetes.parsing.objects import Said
from locallb.model.identities import ClusterName, Home, ObjectKey
from locallb.model.naming import named_after
from locallb.model.state_resource import BALANCER, CLAIMS, CONFIG, GATEWAY_OBJECT, ROOTS, SERVICE
from locallb.outputs.output import outputs
from locallb.planning.of_keys import placements_of
from locallb.planning.planned import Plan
from locallb.provider.gathering import gathering
from locallb.storage import paths, stamps
from locallb.watch.converging.checks import Checks
from locallb.watch.converging.companions import companions
from locallb.watch.converging.differing import Differences
from locallb.watch.converging.files_ahead import write_files_early
from locallb.watch.converging.outcome import Outcome, failures_of, touched_by
from locallb.watch.converging.taken import TakenProxies
from locallb.watch.converging.wanted import Wanted
from locallb.watch.converging.work import FEW, LOOKS, Batch, Work, differing_work, in_order_of, together

LOOKED_AFTER = frozenset({*CLAIMS, CONFIG, SERVICE}).union(*(output.looked_after for output in outputs().values()))
"""Types of resources whose change by others no event reports: files."""
SETTLING = 1.0
"""Seconds after an update in which a Service's status may still be read as it was before."""


class Converger(Struct):
    """Knows what was applied, and applies the rest."""

    home: Home
    engine: Engine
    begin: Callable[[Plan, Collection[ObjectKey]], None] = lambda _plan, _keys: None
    """Called with what an update is of, once the stack is this run's and before anything is looked at."""
    applied: dict[ObjectKey, str] = field(default_factory=dict)
    """By digest; empty for what failed, of which nothing is known."""
    _touched: dict[ObjectKey, float] = field(default_factory=dict)
    """When each was updated last, by the monotonic clock."""
    _differences: Differences = field(default_factory=Differences)
    _told: Mapping[str, object] = field(default_factory=dict)
    """The stack's outputs."""
    _exported: Plan | None = None
    """The plan that has just these, if that is known."""
    _taken: TakenProxies = field(default_factory=TakenProxies)
    _wanted: Wanted = field(default_factory=Wanted)
    _in_order: tuple[object, ...] | None = None
    """State and files that agreed when they were compared last."""
    _checks: Checks = field(default_factory=Checks)
    _readings: int = 0
    """How often the state had been read when it was learned."""
    _ahead: frozenset[ObjectKey] = frozenset()
    """Whose files were put before an update that failed: the state may say otherwise."""

    def learn(self) -> None:
        """Take over what the state says; each load balancer is checked once, those first that differ all the same."""
        self.applied, self._told, self._exported = {}, {}, None
        for resource in (resources := self.engine.resources()):
            if resource.type in ROOTS:
                key = ObjectKey.parse(resource.name)
                tells = resource.type in {BALANCER, GATEWAY_OBJECT} or not key.cluster
                digest = str(resource.inputs.get("digest", "")) if tells else ""
                self.applied[key] = digest or self.applied.get(key, "")
        self._taken.learn(resources, self.applied)
        # What a run left half done may still have what others are to get.
        self.applied |= dict.fromkeys(self._keys_of(self.engine.unfinished()), "")
        self._readings = self.engine.readings
        self._checks.begin(self.home, self.applied, self.engine.known_stamp())

    @property
    def is_overtaken(self) -> bool:
        """Whether another process wrote the state since it was learned, perhaps between two updates of ours."""
        return self.engine.readings != self._readings

    def _stamp(self) -> object:
        """Return which writing of the state is this code's work; None once another process has written it."""
        return None if self.is_overtaken else self.engine.known_stamp()

    def wanted(self, plan: Plan) -> Mapping[ObjectKey, str]:
        """Return the digest of each load balancer of the plan, and of each Service that is told why it gets none.

        Proxies of the stack come first: load balancers need them.
        """
        self._taken.plan(plan)
        return self._wanted.of(plan).digests

    def differing(
        self, said: Mapping[ObjectKey, Said], plan: Plan, stale: Collection[ClusterName], now: float
    ) -> tuple[Mapping[ObjectKey, tuple[str, ...]], float | None]:
        """Name what others changed of ours in objects of live clusters, where that is known: not of stale ones.

        Just after an update it may be old news: then returns when to look again.
        """
        wanted = self.wanted(plan)
        differing: dict[ObjectKey, tuple[str, ...]] = {}
        later: float | None = None
        for key, names in self._differences.of(plan, said):
            if self.applied.get(key) != wanted.get(key) or key.cluster in stale:
                continue
            if (settled := self._touched.get(key, 0.0) + SETTLING) > now:
                later = min(settled, later or settled)
            else:
                differing[key] = tuple(dict.fromkeys((*differing.get(key, ()), *names)))
        return differing, later

    def drifted(self, plan: Plan) -> set[ObjectKey]:
        """Find load balancers and proxies of which others changed or removed something. Raises EngineError."""
        told = (output.stamp(plan) for output in outputs().values())
        seen = self.engine.state_stamp(), *map(stamps.stamps, (paths.proxies_root(), *paths.ledgers())), *told
        if seen == self._in_order:
            return set()
        roots = self.engine.drifted(LOOKED_AFTER)
        self._in_order = None if roots else seen
        return self._keys_of(roots)

    def _keys_of(self, roots: Collection[str]) -> set[ObjectKey]:
        """Return what these roots belong to."""
        names = self._taken.names(self.applied)
        return {key for root in roots if (key := named_after(name_of(root), names))}

    def work(self, wanted: Mapping[ObjectKey, str], broken: Collection[ObjectKey]) -> Work:
        """Return what isn't as planned. `broken` are those known to need repair although nothing was planned again."""
        checks = self._checks
        self._taken.leave(self.applied, checks.unchecked)
        known = self.applied = in_order_of(wanted, self.applied)
        unchecked = (key for key in checks.unchecked if wanted.get(key) == known[key])
        there = {key for key in broken if key in wanted and (key in known or self._taken.of(key))}
        return differing_work(
            wanted,
            known,
            tuple(sorted(there)),
            spare=self._wanted.spare,
            told=self._wanted.only_told,
            unchecked=together(unchecked, self._wanted.proxies),
            few=LOOKS if checks.look_only else FEW,
        )

    def update(self, plan: Plan, wanted: Mapping[ObjectKey, str], batch: Batch) -> Outcome:
        """Bring some load balancers to what is planned. Raises EngineError if it can't begin, or keep its outcome."""
        asked, in_order = frozenset(batch.keys), frozenset[ObjectKey]()
        keys = asked | companions(asked, plan, wanted, self.applied, self._wanted.proxies)
        again = self._taken.waiting_again(keys, wanted)
        asked, keys = asked | again, keys | again
        refresh = batch.refresh or bool(again) or not self._ahead.isdisjoint(keys)
        if refresh and self._needs_look_only(asked, wanted):
            in_order = self._in_order_among(asked)
            self._checks.ended(in_order, (), self._stamp())
            if in_order == asked:
                return Outcome(Result(ok=True), {}, asked)
            asked -= in_order
            keys = asked | companions(asked, plan, wanted, self.applied, self._wanted.proxies)
        outputs = self._changed_outputs(plan)
        result = self._deploy(plan, keys, outputs, refresh=refresh)
        self._note_outputs(plan, outputs, result)
        names, failed = self._taken.names(keys), self.note(keys, result)
        self._note_applied(keys, failed, wanted)
        return Outcome(result, failed, in_order | (keys - failed.keys() - touched_by(result, names)))

    def _deploy(
        self, plan: Plan, keys: Collection[ObjectKey], outputs: Mapping[str, object], *, refresh: bool
    ) -> Result:
        """Declare these to the engine, or the whole plan where the state has to be read as a whole."""
        there = {routes.key for routes in plan.routes if self.applied.get(routes.key)}
        wanted = self._wanted.of(plan)

        def declare_keys() -> None:
            if not any(routes.key in keys for routes in plan.routes):  # which may lead to a new pod
                self._ahead |= write_files_early(plan, keys, self.engine.is_cancelled)
            declare_some(wanted, keys, outputs, there)

        begin = partial(self.begin, plan, keys)
        try:
            with self._gathering(plan, keys):
                return self.engine.up(declare_keys, refresh=refresh, scope=self._scope(keys), begin=begin)
        except FullScopeNeeded:
            result = self.engine.up(lambda: declare(plan, wanted), refresh=refresh, begin=begin)
            self._readings = self.engine.readings  # whatever the state said: all of it was declared
            return result

    def _note_outputs(self, plan: Plan, outputs: Mapping[str, object], result: Result) -> None:
        """Note what the stack exports now; the plan only where an update took over all of it."""
        self._told = result.outputs
        exported = result.ok and all(self._told.get(name) == value for name, value in outputs.items())
        self._exported = plan if exported else None

    def _note_applied(
        self, keys: Collection[ObjectKey], failed: Collection[ObjectKey], wanted: Mapping[ObjectKey, str]
    ) -> None:
        """Note which of these are as wanted now, and when they were updated."""
        self._ahead -= {key for key in keys if key not in failed}
        ended = time.monotonic()
        for key in keys:
            self._touched[key] = ended
            self._taken.updated(key, failed=key in failed)
            if key in failed:
                self.applied[key] = ""
            elif key in wanted:
                self.applied[key] = wanted[key]
            else:
                self.applied.pop(key, None)
                self._touched.pop(key, None)

    def _gathering(self, plan: Plan, keys: Collection[ObjectKey]) -> AbstractContextManager[None]:
        """Have what is new for shared proxies wait for each other."""
        new = [placement for placement in placements_of(plan, keys) if placement.key not in self.applied]
        shared = [(placement.part.part.proxy, len(placement.addresses)) for placement in new if placement.part]
        return gathering((proxy for proxy, _ in shared), sum(addresses for _, addresses in shared))

    def _needs_look_only(self, asked: Collection[ObjectKey], wanted: Mapping[ObjectKey, str]) -> bool:
        """Return whether a look is enough: by the state all are as wanted, and this code declared them so."""
        same = all(self.applied.get(key) == wanted.get(key) for key in asked)
        return same and self._checks.needs_look_only(asked)

    def _in_order_among(self, keys: Collection[ObjectKey]) -> frozenset[ObjectKey]:
        """Look at these, and return of which nothing differs: an update of many for one that does takes long."""
        drifted = self.engine.drifted(scope=self._scope(keys))
        return frozenset(key for key in keys if not drifted or drifted.isdisjoint(self._roots(key)))

    def _changed_outputs(self, plan: Plan) -> Mapping[str, object]:
        """Return the outputs to export, only what changed: a thousand Services' outputs cost more than one update."""
        if self._exported and exports_the_same(self._exported, plan):
            return {}
        return {name: value for name, value in exports(plan).items() if self._told.get(name) != value}

    def note(self, keys: Collection[ObjectKey], result: Result) -> Mapping[ObjectKey, str]:
        """Note for the next start how an update of these ended; return which failed, each with its first sentence."""
        failed = failures_of(keys, result, self._roots, self._taken.names(keys))
        # Of an update that broke off nobody knows what it came to.
        self._checks.ended(keys, failed if result.is_whole else keys, self._stamp())
        return failed

    def _scope(self, keys: Collection[ObjectKey]) -> Scope:
        return only(urn for key in keys for urn in self._roots(key))

    def _roots(self, key: ObjectKey) -> frozenset[str]:
        """Return the URNs that the components of a key may have."""
        names = (str(name) for name in (key, *self._taken.of(key)))
        return frozenset(root_urn(self.home.project, self.home.stack, kind, name) for name in names for kind in ROOTS)
