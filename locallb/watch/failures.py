"""Failures although the plan is unchanged: proxies that ended or hang, disputes with other controllers, silent ports.

Here they are known, with the time of each repair. A repair takes a fraction of a second; an outage that lasts longer
withdraws the addresses of Services on that proxy from their statuses. Not here: queries of proxies (`hangs`),
withdrawals (`planning.statuses`), the repair (`converge`), and retries (`schedule`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import chain
from math import inf
from types import MappingProxyType

from msgspec import Struct, field
from msgspec.structs import replace

from locallb.kubernetes.object_parsing import AnyStatus
from locallb.kubernetes.status import WAITING, ObservedStatus
from locallb.model.identities import ClusterName, ObjectKey, ObjectKind, Protocol
from locallb.model.pacing import Backoff, Pace
from locallb.model.reasons import OF_THE_HOST
from locallb.model.serving import Proxy
from locallb.planning.planned import Plan, placements_of
from locallb.planning.pod_routes import lost_routes
from locallb.planning.service_rows import Observation
from locallb.planning.statuses import SILENCES, SilentPort, is_answered
from locallb.sources.snapshot import SnapshotResult
from locallb.threads import jitter
from locallb.watch.converge import Converger
from locallb.watch.events import Cause, Mark
from locallb.watch.hangs import Hang
from locallb.watch.updates import Outcome

REPAIRS = Pace(first=1.0, longest=300.0, idle=600.0)
"""Of what others change again after it was repaired; forgotten when it hasn't been changed for ten minutes."""
CONTESTED = 2
"""Times that it has to come back until that is reported: once may be an old event that came late."""
_CLASS = ", or give the {} a class that only one of them serves (spec.{})"
_REMEDIES: Mapping[ObjectKind, tuple[str, str]] = {
    ObjectKind.SERVICE: ("Service", _CLASS.format("Service", "loadBalancerClass")),
    ObjectKind.GATEWAY: ("Gateway", _CLASS.format("Gateway", "gatewayClassName")),
}
_OTHERWISE = "object", ""
_NO_REPAIRS: Mapping[ObjectKey, Backoff] = MappingProxyType({})
_NOTHING: Mapping[ObjectKey, tuple[str, ...]] = MappingProxyType({})


class Disputes(Struct, frozen=True):
    """Objects of which another program changed what is ours. Pure; the time is an argument.

    The first repair is immediate. A change that recurs after its repair is repaired more and more rarely and reported:
    another controller then wants another value, and neither of the two would ever end.
    """

    repairs: Mapping[ObjectKey, Backoff] = field(default_factory=lambda: _NO_REPAIRS)
    differing: Mapping[ObjectKey, tuple[str, ...]] = field(default_factory=lambda: _NOTHING)
    """What differs now, by name."""
    contested: Mapping[ObjectKey, tuple[str, ...]] = field(default_factory=lambda: _NOTHING)
    """What comes back after each repair."""

    def observed(self, now: float, differing: Mapping[ObjectKey, tuple[str, ...]], chance: float) -> Disputes:
        """Note what differs; what isn't named doesn't differ."""
        repairs = {
            key: backoff if backoff.is_healthy or key in differing else backoff.succeeded(now)
            for key, backoff in self.repairs.items()
            if not backoff.is_idle(now)
        }
        contested = {key: names for key, names in self.contested.items() if key in repairs}
        for key in differing.keys() - repairs.keys():
            repairs[key] = Backoff(REPAIRS)
        for key in differing:
            if repairs[key].is_healthy:
                repairs[key] = repairs[key].failed(now, chance)
            if repairs[key].failures >= CONTESTED:
                contested[key] = differing[key]
        return Disputes(MappingProxyType(repairs), differing, MappingProxyType(contested))

    def due(self, now: float) -> frozenset[ObjectKey]:
        """Return which to repair now."""
        return frozenset(key for key in self.differing if self.repairs[key].is_due(now))

    def check_at(self, now: float) -> float | None:
        """Return the time of the next postponed repair; None if there is none."""
        waits = (self.repairs[key].not_before for key in self.differing)
        return min((at for at in waits if at > now), default=None)

    def repaired(self, now: float, keys: Collection[ObjectKey]) -> Disputes:
        """Note that what differed of these is as it should be again."""
        done = self.differing.keys() & keys
        repairs = {**self.repairs, **{key: self.repairs[key].succeeded(now) for key in done}}
        differing = {key: names for key, names in self.differing.items() if key not in done}
        return replace(self, repairs=MappingProxyType(repairs), differing=MappingProxyType(differing))

    def notices(self) -> Iterator[str]:
        """Return which objects another program changes again and again."""
        for key, names in sorted(self.contested.items()):
            kind, remedy = _REMEDIES.get(key.kind, _OTHERWISE) if key.cluster else _OTHERWISE
            yield (
                f"{key}: another controller changes the {' and '.join(names)} of this {kind} back after every repair;"
                f" repairs are backing off; find that controller{remedy}"
            )


GRACE = 5.0
"""Seconds for which a proxy may be away before that is reported: many times what its repair takes."""
_NONE: Mapping[str, float] = MappingProxyType({})


class Outages(Struct, frozen=True):
    """Proxies with a failed repair, by name. Pure; the time is an argument.

    A failure that lasts longer than `GRACE` is an outage.
    """

    since: Mapping[str, float] = field(default_factory=lambda: _NONE)
    """When the first repair in vain began."""

    def failed(self, began: float, names: Iterable[str]) -> Outages:
        """Note that a repair of these, which began then, failed."""
        return Outages(MappingProxyType({**dict.fromkeys(names, began), **self.since}))

    def ended(self, names: Collection[str]) -> Outages:
        remaining = {name: at for name, at in self.since.items() if name not in names}
        return Outages(MappingProxyType(remaining)) if len(remaining) < len(self.since) else self

    def planned(self, names: Collection[str]) -> Outages:
        """Note that there are these proxies and no others."""
        return self.ended(self.since.keys() - names)

    def lasting(self, now: float) -> frozenset[str]:
        """Return the outages that have lasted longer than a repair takes."""
        return frozenset(name for name, at in self.since.items() if at + GRACE <= now)

    def check_at(self, now: float) -> float | None:
        """Return when the next one will have lasted that long; None if there is none."""
        return min((at + GRACE for at in self.since.values() if at + GRACE > now), default=None)


def proxies_of(plan: Plan, keys: Collection[ObjectKey]) -> Mapping[ObjectKey, str]:
    """Return which proxies serve these, by name; of a proxy's own key it is that one."""
    own = {proxy.root: proxy.proxy.name for proxy in plan.proxies if proxy.root in keys}
    return own | {placement.key: placement.proxy for placement in placements_of(plan, keys)}


def serves(proxy: Proxy, observed: Observation | None) -> bool:
    """Return whether a proxy answered and has any of its own listeners, if it is to have some."""
    names = {listener.name for listener in proxy.every_listener}
    return observed is not None and (not names or not names.isdisjoint(observed.listening))


LASTING = 4.0
"""Seconds: more than proxies wait before they are asked again about what is silent."""
_SILENCE_NONE: Mapping[SilentPort, float] = MappingProxyType({})


class Silences(Struct, frozen=True):
    """Published ports without a backend that takes connections, and since when proxies report otherwise. Pure.

    A backend that restarts is away for a moment, and every change is a write to a cluster: so the published ports
    change only after `LASTING` seconds in which proxies reported otherwise.
    """

    published: frozenset[SilentPort] = frozenset()
    since: Mapping[SilentPort, float] = field(default_factory=lambda: _SILENCE_NONE)

    def observed(self, now: float, silent: frozenset[SilentPort]) -> Silences:
        otherwise = {port: self.since.get(port, now) for port in silent ^ self.published}
        lasting = {port for port, at in otherwise.items() if at + LASTING <= now}
        remaining = {port: at for port, at in otherwise.items() if port not in lasting}
        return Silences(self.published ^ lasting, MappingProxyType(remaining))

    def check_at(self) -> float | None:
        """Return when something else may be to be published; None if nothing is."""
        return min((at + LASTING for at in self.since.values()), default=None)


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
        fallen += [relay.key for relay in plan.relays if str(relay.key) in named]
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
    if not released:
        return set()
    going_on = converger.going_on
    failed = [each for each in plan.placements if converger.applied.get(each.key) == "" and each.key not in going_on]
    ports = [port for each in failed for port in each.ports if port.port.protocol is Protocol.UDP]
    needed = {listener.place for port in ports for listener in port.listeners}
    return {root for root, places in released.items() if needed.intersection(places)}
