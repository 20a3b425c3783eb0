"""Everything that is damaged although the plan is the same: proxies that ended or hang, what others changed.

It is known here, and what of it is to be repaired now. Not here: the repair (`converge`), and retries (`schedule`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import chain
from math import inf
from types import MappingProxyType

from msgspec import Struct, field

from locallb.kubernetes.parsing.objects import AnyStatus
from locallb.kubernetes.status_patch import WAITING, ObservedStatus
from locallb.model.identities import ClusterName, ObjectKey
from locallb.model.reasons import OF_THE_HOST
from locallb.model.serving import Proxy
from locallb.planning.of_keys import placements_of
from locallb.planning.planned import Plan
from locallb.planning.routes.pod_routes import lost_routes
from locallb.planning.status import Observation
from locallb.planning.statuses.unanswered import SILENCES, is_answered
from locallb.sources.snapshot import SnapshotResult
from locallb.threads.jitter import jitter
from locallb.watch.converging.converge import Converger
from locallb.watch.converging.outcome import Outcome
from locallb.watch.events import Cause, Mark
from locallb.watch.failures.disputes import Disputes
from locallb.watch.failures.outages import Outages, proxies_of, serves
from locallb.watch.failures.silences import Silences
from locallb.watch.marks.hangs import Hang

REREAD = 1.0
"""Seconds between two readings of a proof that doesn't agree with what its proxy reports."""
_UNREPORTED: Mapping[str, Observation | None] = MappingProxyType({})
_UNCERTAIN = frozenset({WAITING, *SILENCES})


class Failures(Struct):
    """For one thread. `observe` queries proxies for what they serve; proxies that don't answer are missing."""

    observe: Callable[[Iterable[Proxy]], Mapping[str, Observation]]
    broken: set[ObjectKey] = field(default_factory=set)
    """What needs repair although nothing was planned again."""
    disputes: Disputes = field(default_factory=Disputes)
    outages: Outages = field(default_factory=Outages)
    silences: Silences = field(default_factory=Silences)
    hanging: Mapping[str, Hang] = field(default_factory=dict)
    """Proxies with a hanging Envoy, by name, at the last check."""
    uncertain: Mapping[ObjectKey, float] = field(default_factory=dict)
    """Services that aren't published as serving because of their backends, and when the proof of each was read anew."""
    replaced: Mapping[str, Hang] = field(default_factory=dict)
    """Those of them that are to be ended now and started again."""
    _hung_before: Collection[str] = ()
    """Proxies that hung at the last check; the statuses of their Services were written by now."""

    def exited(self, plan: Plan, marks: Collection[Mark]) -> list[ObjectKey]:
        """Find out which load balancers the proxies serve that ended."""
        named = {mark.subject for mark in marks if mark.cause is Cause.PROXY}
        fallen = (
            [planned.root for planned in plan.proxies if {planned.proxy.name, planned.proxy.id} & named]
            if named
            else []
        )
        self.broken.update(fallen)
        return fallen

    def hung(self, hanging: Mapping[str, Hang]) -> None:
        """Take over which proxies hang: each is an outage since it was asked."""
        self.hanging = hanging
        for name, hang in hanging.items():
            self.outages = self.outages.failed(hang.since, [name])

    def drifted(self, plan: Plan, converger: Converger) -> set[ObjectKey]:
        """Find what no event reports: files that others changed, proxies that answer again. Raises EngineError."""
        away = self._roots(plan, self.outages.since.keys() - self.hanging.keys())
        drifted = converger.drifted(plan) | away
        self.broken |= drifted
        return drifted

    def inspect(
        self,
        reading: SnapshotResult,
        plan: Plan,
        stale: Collection[ClusterName],
        converger: Converger,
        observed: Mapping[str, Observation | None] = _UNREPORTED,
    ) -> list[float | None]:
        """Find out what is to be repaired now; return when to look again."""
        now = time.monotonic()
        differing, later = converger.differing(reading.observed_statuses, plan, stale, now)
        self.disputes = self.disputes.observed(now, differing, jitter())
        if self.outages.since:
            self.outages = self.outages.planned({proxy.proxy.name for proxy in plan.proxies})
        self.broken |= self._roots(plan, self._unhung_or_due(now, plan, converger))
        lost = lost_routes(plan, reading.snapshot)
        self.broken |= self._answered(now, plan, reading.observed_statuses, observed) | _in_the_way(plan, converger)
        claimed = {proxy.key: proxy.root for proxy in plan.proxies if proxy.serves} if self.broken else {}
        broken = {claimed.get(key, key) for key in self.broken}
        self.broken = (broken | lost | self.disputes.due(now)) & converger.wanted(plan).keys()
        reread = min((at + REREAD for at in self.uncertain.values() if at + REREAD > now), default=None)
        return [later, self.disputes.check_at(now), self.outages.check_at(now), self.silences.check_at(), reread]

    def _answered(
        self,
        now: float,
        plan: Plan,
        stated: Mapping[ObjectKey, AnyStatus],
        observed: Mapping[str, Observation | None],
    ) -> set[ObjectKey]:
        """Find Services that their proxies report as serving although that isn't published: the proof is read anew.

        It decides what is published, and may not agree yet.
        """
        self.uncertain = {
            key: self.uncertain.get(key, -inf)
            for key, status in stated.items()
            if isinstance(status, ObservedStatus) and status.serving and status.serving.reason in _UNCERTAIN
        }
        placements = placements_of(plan, self.uncertain) if self.uncertain else ()
        answered = [each for each in placements if is_answered(each, observed.get(each.proxy))]
        due = {each.key for each in answered if self.uncertain[each.key] + REREAD <= now}
        self.uncertain |= dict.fromkeys(due, now)
        return due

    def replacements(self) -> Mapping[str, float]:
        """Return when the proxies that hang, and aren't replaced now, are to be."""
        return {name: hang.replace_at for name, hang in self.hanging.items() if name not in self.replaced}

    def _unhung_or_due(self, now: float, plan: Plan, converger: Converger) -> set[str]:
        """Find which proxies are to be replaced now, and which answer again: those are looked at.

        The look that finds one hanging tells that first, as long as this needs nothing of the proxy.
        """
        if not self.hanging and not self._hung_before:
            return set()
        unhung = self.outages.since.keys() & (set(self._hung_before) - self.hanging.keys())
        failing = {placement.proxy for placement in plan.placements if converger.applied.get(placement.key) == ""}
        ripe = failing.union(self._hung_before)
        self.replaced = {name: hang for name, hang in self.hanging.items() if name in ripe and hang.replace_at <= now}
        self._hung_before = self.hanging.keys()
        return unhung | self.replaced.keys()

    @staticmethod
    def _roots(plan: Plan, names: Collection[str]) -> set[ObjectKey]:
        return {proxy.root for proxy in plan.proxies if proxy.proxy.name in names} if names else set()

    def notices(self) -> Iterator[str]:
        """Return what others do again and again, and which proxies hang."""
        yield from self.disputes.notices()
        for name in sorted(self.hanging):
            yield f"{name}: its Envoy runs and answers nothing; it is ended, and started again at the same addresses"

    def blocked_by(self, plan: Plan) -> str:
        """Return in one text what stands in the way on this host."""
        problems = [rejection.problem for rejection in plan.rejections if rejection.problem.reason in OF_THE_HOST]
        ports = chain.from_iterable(placement.ports for placement in plan.placements)
        problems += [port.problem for port in ports if port.problem and port.problem.reason in OF_THE_HOST]
        return " ".join(sorted(map(str, problems)))

    def repaired(self, now: float, keys: Collection[ObjectKey], outcome: Outcome) -> list[ObjectKey]:
        """Note what of these an update repaired, and return it."""
        repaired = [key for key in keys if key in self.broken and key not in outcome.failed]
        self.broken.difference_update(repaired)
        self.disputes = self.disputes.repaired(now, repaired)
        return repaired

    def returned(
        self, plan: Plan, keys: Collection[ObjectKey], outcome: Outcome, began: float, hanging: Collection[str]
    ) -> Collection[str]:
        """Find proxies that an update couldn't restore; return the restored ones, by their own answer.

        An update of a load balancer on a proxy of the stack proves nothing about that proxy. Hanging ones aren't
        queried: everything would wait for their answer.
        """
        before = self.outages
        if not outcome.failed and not before.since:
            return ()
        names = proxies_of(plan, keys)
        doubtful = {name for key, name in names.items() if key in outcome.failed or name in before.since}
        requested = [proxy.proxy for proxy in plan.proxies if proxy.proxy.name in doubtful - set(hanging)]
        observed = self.observe(requested)
        away = {
            proxy.name for proxy in requested if not serves(proxy, observed.get(proxy.name))
        } | doubtful.intersection(hanging)
        self.outages = before.failed(began, away).ended(doubtful - away)
        return before.since.keys() - self.outages.since.keys()

    def dependent(self, plan: Plan, outcome: Outcome, silent: Collection[ClusterName]) -> set[ObjectKey]:
        """Find failures due to an unavailable proxy of the stack or cluster: each of these is retried on its own."""
        if not outcome.failed:
            return set()
        away = {
            placement.key for placement in plan.placements if placement.part and placement.proxy in self.outages.since
        }
        return {key for key in outcome.failed if key in away or key.cluster in silent}


def _in_the_way(plan: Plan, converger: Converger) -> set[ObjectKey]:
    """Find proxies that gave up UDP ports and keep them, where failed load balancers need these."""
    released = {planned.root: planned.proxy.released for planned in plan.proxies if planned.proxy.released}
    failed = [each for each in plan.placements if converger.applied.get(each.key) == ""] if released else ()
    needed = {listener.place for each in failed for port in each.ports for listener in port.listeners}
    return {root for root, places in released.items() if needed.intersection(places)}
