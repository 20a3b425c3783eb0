"""Which outside parties don't answer or are slow, since when, and which load balancers wait for them.

Pure. Not here: what an operation in a lane is (`engine.core`), and when a proxy hangs (`watch.hangs`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from msgspec import Struct

from locallb.engine.core.lanes import LateLane
from locallb.model.identities import ObjectKey
from locallb.model.parties import CHECK, CLUSTER, DNS, DOCKER, NETLINK, PODMAN, PROXY
from locallb.model.texts import counted, few
from locallb.planning.planned import Plan

_NAMED = 3
"""Load balancers that a sentence names."""
_PARTIES = {DNS: "name server ", DOCKER: "Docker", NETLINK: "routes of this host", PODMAN: "Podman"}


class Delay(Struct, frozen=True, order=True):
    """A party that doesn't answer, or slowly."""

    kind: str
    """What it is: cluster, proxy, dns, docker, podman, ledger, netlink."""
    party: str
    """Its name for users."""
    since: float
    """When the oldest request without an answer was made, in seconds since the epoch."""
    waiting: tuple[ObjectKey, ...] = ()
    """Load balancers that wait for it."""

    def sentence(self, time: str) -> str:
        """Return it for users; `time` is how long ago, or since when."""
        if not self.waiting:
            return f"{self.party}: no answer {time}"
        number = len(self.waiting)
        names = few([str(key) for key in self.waiting], _NAMED)
        verb = "waits" if number == 1 else "wait"
        return f"{self.party}: no answer {time}; {counted(number, 'load balancer')} {verb} for it ({names})"


def delays(
    lanes: Mapping[LateLane, Collection[ObjectKey]], hanging: Mapping[str, float], plan: Plan, epoch: float
) -> Sequence[Delay]:
    """Return all delays, one for each party; `hanging` are proxies by name, each with the time since when.

    `epoch` is added to times of the monotonic clock.
    """
    if not lanes and not hanging:
        return ()
    merged: dict[tuple[str, str], Delay] = {}
    for delay in (*_of_lanes(lanes, plan, epoch), *_of_proxies(hanging, plan, epoch)):
        other = merged.get((delay.kind, delay.party), delay)
        waiting = tuple(sorted({*delay.waiting, *other.waiting}))
        merged[delay.kind, delay.party] = Delay(delay.kind, delay.party, min(delay.since, other.since), waiting)
    return tuple(sorted(merged.values()))


def _of_lanes(lanes: Mapping[LateLane, Collection[ObjectKey]], plan: Plan, epoch: float) -> Iterator[Delay]:
    names = {str(each.proxy.id): each.proxy.name for each in plan.proxies} if lanes else {}
    for lane, keys in lanes.items():
        kind, _, name = lane.lane.partition("/")
        if kind in {CHECK, PROXY}:
            kind, party = PROXY, f"proxy {names.get(name, name)}"
        elif kind == CLUSTER:
            clusters = sorted({key.cluster for key in keys if key.cluster})
            party = f"cluster {', '.join(clusters) or name.partition(' of ')[0]}"
        else:
            party = f"{_PARTIES.get(kind, kind)}{name}"
        yield Delay(kind, party, lane.since + epoch, tuple(sorted(keys)))


def _of_proxies(hanging: Mapping[str, float], plan: Plan, epoch: float) -> Iterator[Delay]:
    for name, since in hanging.items():
        waiting = tuple(sorted(placement.key for placement in plan.placements if placement.proxy == name))
        yield Delay(PROXY, f"proxy {name}", since + epoch, waiting)
