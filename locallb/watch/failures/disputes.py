"""Disputes: other controllers' changes of our part of an object, and when each is repaired. Pure; time is an argument.

The first repair is immediate. A change that recurs after its repair is repaired more and more rarely and reported:
another controller then wants another value, and neither of the two would ever end. Not here: what differs
(`status_patch`), threads, clocks, chance.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from types import MappingProxyType

from msgspec import Struct, field
from msgspec.structs import replace

from locallb.model.identities import ObjectKey, ObjectKind
from locallb.model.pacing import Backoff, Pace

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
_NO_OWNER: Mapping[ObjectKey, Backoff] = MappingProxyType({})
_NOTHING: Mapping[ObjectKey, tuple[str, ...]] = MappingProxyType({})


class Disputes(Struct, frozen=True):
    """Objects of which another program changed what is ours."""

    repairs: Mapping[ObjectKey, Backoff] = field(default_factory=lambda: _NO_OWNER)
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
            kind, remedy = _REMEDIES.get(key.kind, _OTHERWISE)
            yield (
                f"{key}: somebody changes the {' and '.join(names)} of this {kind} back after every repair, so that is"
                f" repaired more and more rarely; find that controller{remedy}"
            )
