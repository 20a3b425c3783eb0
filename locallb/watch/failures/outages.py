"""Outages: proxies that can't be restarted, and since when. Pure; takes the time as an argument.

A repair takes a fraction of a second. What takes longer than `GRACE` is an outage, and the addresses of Services on
that proxy are withdrawn from their status. Not here: queries of proxies, and the statuses (`withdrawal`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType

from msgspec import Struct, field

from locallb.model.identities import ObjectKey
from locallb.model.serving import Proxy
from locallb.planning.of_keys import placements_of
from locallb.planning.planned import Plan
from locallb.planning.status import Observation

GRACE = 5.0
"""Seconds for which a proxy may be away before that is reported: many times what its repair takes."""
_NONE: Mapping[str, float] = MappingProxyType({})


class Outages(Struct, frozen=True):
    """Proxies with a failed repair, by name."""

    since: Mapping[str, float] = field(default_factory=lambda: _NONE)
    """When the first repair in vain began."""

    def failed(self, began: float, names: Iterable[str]) -> Outages:
        """Note that a repair of these, which began then, failed."""
        return Outages(MappingProxyType({**dict.fromkeys(names, began), **self.since}))

    def ended(self, names: Collection[str]) -> Outages:
        """Note that these serve."""
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
