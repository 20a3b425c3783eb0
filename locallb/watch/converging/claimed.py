"""Spare proxies that a Gateway has taken: they are updated with it, no longer by themselves.

For one thread. Not here: who takes which (`planning.proxies`), and the update (`converge`).
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping

from msgspec import Struct, field

from locallb.engine.state.resource import ResourceState
from locallb.model.identities import ObjectKey
from locallb.model.state_resource import CONFIG
from locallb.planning.planned import Plan
from locallb.watch.converging.outcome import Names


class ClaimedProxies(Struct):
    """By whom each is taken."""

    planned: Mapping[ObjectKey, ObjectKey] = field(default_factory=dict)
    """As the last plan has it."""
    applied: dict[ObjectKey, ObjectKey] = field(default_factory=dict)
    """As the state has it, or may have it where an update failed."""
    _takers: Mapping[ObjectKey, ObjectKey] = field(default_factory=dict)
    """Gateway that claims each spare proxy."""
    _remaining: set[ObjectKey] = field(default_factory=set)
    """Proxies that were left to another load balancer, with no update of that one since."""

    def learn(self, resources: Iterable[ResourceState], applied: dict[ObjectKey, str]) -> None:
        """Take over what the state says; in `applied` each is left to whom it serves."""
        configs = (resource for resource in resources if resource.type == CONFIG)
        serving = ((resource.inputs.get("serves"), resource.name) for resource in configs)
        self.applied = {ObjectKey.parse(str(key)): ObjectKey.parse(proxy) for key, proxy in serving if key}
        self._remaining = set()
        for key, proxy in self.applied.items():
            applied.pop(proxy, None)
            applied.setdefault(key, "")

    def plan(self, plan: Plan) -> None:
        """Take over what is planned."""
        self.planned = {proxy.root: proxy.key for proxy in plan.proxies if proxy.serves}
        self._takers = {proxy: key for key, proxy in self.planned.items()}

    def leave(self, applied: dict[ObjectKey, str], unchecked: set[ObjectKey]) -> None:
        """Leave claimed spare proxies to the load balancers that they serve; take back the ones no longer claimed."""
        for proxy in self._remaining - self._takers.keys():
            applied.setdefault(proxy, "")
            self._remaining.remove(proxy)
        for proxy in self._takers:
            if applied.pop(proxy, None) is not None:
                self._remaining.add(proxy)
            unchecked.discard(proxy)

    def of(self, key: ObjectKey) -> set[ObjectKey]:
        """Return the applied and planned proxies of `key`, except proxies that another load balancer claims."""
        either = (proxies.get(key) for proxies in (self.applied, self.planned))
        return {proxy for proxy in either if proxy and self._takers.get(proxy, key) == key}

    def released_spares(self, keys: Iterable[ObjectKey], wanted: Container[ObjectKey]) -> set[ObjectKey]:
        """Return proxies that these don't claim after all: an update failed, and files may show the opposite."""
        return {proxy for key in keys for proxy in self.of(key) if proxy in wanted}

    def names(self, keys: Iterable[ObjectKey]) -> Names:
        """Return keys by what their resources are named after."""
        names = {str(key): key for key in keys}
        return names | {str(proxy): key for key in names.values() for proxy in self.of(key)}

    def updated(self, key: ObjectKey, *, failed: bool) -> None:
        """Note how an update of it ended."""
        if proxy := self.planned.get(key):
            self.applied[key] = proxy
            self._remaining.discard(proxy)
        elif not failed:
            self.applied.pop(key, None)
