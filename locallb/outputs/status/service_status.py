"""The resource ServiceStatus: the addresses, ports and conditions in a Service's status."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from msgspec.structs import replace

from locallb.kubernetes.api import live_service
from locallb.kubernetes.status import (
    NOTHING,
    Live,
    Published,
    awaiting,
    differences,
    observed_status,
    published,
    publishing,
)
from locallb.resources.properties import ServiceStatusInputs, ServiceStatusState
from locallb.resources.resource_type import ProviderError, ResourceType, grown


class ServiceStatus(ResourceType[ServiceStatusInputs, ServiceStatusState]):
    """Publishes, repairs and withdraws."""

    inputs = ServiceStatusInputs
    state = ServiceStatusState

    def create(self, new: ServiceStatusInputs) -> tuple[str, ServiceStatusState]:
        """Publish it; existing entries of the same addresses are replaced."""
        return str(new.owner.service), self._publish(new, ())

    def read(self, state: ServiceStatusState) -> ServiceStatusState | None:
        """Read our part of the status. An API that doesn't answer proves nothing: it counts as unchanged."""
        return live_service.compare(
            state.access, state.owner, state, lambda live: _contains(live, state), lambda live: _observed(live, state)
        )

    def leaves_nothing(self, state: ServiceStatusState) -> bool:
        """Return whether the status has nothing of ours, or its Service or the whole cluster is gone."""
        return live_service.has_none(state.access, state.owner, lambda live: _has_ours(live, state))

    def update(self, old: ServiceStatusState, new: ServiceStatusInputs) -> ServiceStatusState:
        """Publish it in place of our former part, and withdraw that if it is of another Service."""
        if old.owner != new.owner:
            live_service.withdraw(old.access, old.owner, _withdrawing(old))
        return self._publish(new, _addresses(old))

    def delete(self, state: ServiceStatusState) -> None:
        """Withdraw it, unless it belongs to the project that this one is a copy of."""
        if not self.belongs_to_copied_project(state.owner):
            live_service.withdraw(state.access, state.owner, _withdrawing(state))

    def _publish(self, new: ServiceStatusInputs, ours: Collection[str]) -> ServiceStatusState:
        def publish(live: Live) -> Mapping[str, object] | None:
            return publishing(live, ours, _stated(new), live_service.now(), alone=new.alone)

        if live_service.write(new.access, new.owner, publish) is None:
            raise ProviderError(f"{new.owner.service} was deleted meanwhile; run again")
        return grown(self.state, new)


def _contains(live: Live, state: ServiceStatusState) -> bool:
    """Return whether a Service says what was published."""
    return not differences(observed_status(live), _addresses(state), _stated(state), alone=state.alone)


def _observed(live: Live, state: ServiceStatusState) -> ServiceStatusState:
    observed = published(live, None if state.alone else _addresses(state))
    return replace(state, ingress=observed.ingress, conditions=observed.conditions)


def _has_ours(live: Live, state: ServiceStatusState) -> bool:
    ours = published(live, _addresses(state))
    return bool(ours.ingress or ours.conditions)


def _withdrawing(state: ServiceStatusState) -> Callable[[Live], Mapping[str, object] | None]:
    ours = _addresses(state)
    return lambda live: publishing(live, ours, NOTHING, live_service.now())


def _stated(inputs: ServiceStatusInputs | ServiceStatusState) -> Published:
    stated = Published(inputs.ingress, inputs.conditions)
    return awaiting(stated, inputs.waiting) if inputs.waiting else stated


def _addresses(state: ServiceStatusState) -> list[str]:
    return [entry.ip for entry in state.ingress]
