"""ServiceStatus: the addresses, ports and conditions in a Service's status."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from datetime import UTC, datetime

from locallb.kubernetes.api import live_service
from locallb.kubernetes.api.errors import Fault, KubeError
from locallb.kubernetes.frontend import Frontend, frontend
from locallb.kubernetes.status_patch import (
    NOTHING,
    Live,
    Published,
    differences,
)
from locallb.resources.errors import ProviderError
from locallb.resources.properties import ServiceStatusInputs, ServiceStatusState
from locallb.resources.resource_type import ResourceType, grown


class ServiceStatus(ResourceType[ServiceStatusInputs, ServiceStatusState]):
    """Publishes, repairs and withdraws."""

    inputs = ServiceStatusInputs
    state = ServiceStatusState

    def create(self, new: ServiceStatusInputs) -> tuple[str, ServiceStatusState]:
        """Publish it; what stands there of the same addresses is replaced."""
        return str(new.owner.service), self._publish(new, ())

    def read(self, state: ServiceStatusState) -> ServiceStatusState | None:
        """Read what the status says of ours. An API that doesn't answer says nothing, so nothing has changed."""
        if live_service.is_watched_to_be(state.access, state.owner, lambda seen: _says(seen, state)):
            return state
        try:
            live = live_service.find(state.access, state.owner)
        except KubeError:
            return state
        if live is None:
            return None
        if _says(live, state):
            return state
        seen = _kind(state).published(live, None if state.alone else _addresses(state))
        return replace(state, ingress=seen.ingress, conditions=seen.conditions)

    def leaves_nothing(self, state: ServiceStatusState) -> bool:
        """Return whether the status has nothing of ours, or its Service or the whole cluster is gone."""
        try:
            live = live_service.find(state.access, state.owner)
        except KubeError as error:
            return error.fault is Fault.NO_CONTEXT
        ours = _kind(state).published(live, _addresses(state)) if live else NOTHING
        return not ours.ingress and not ours.conditions

    def update(self, old: ServiceStatusState, new: ServiceStatusInputs) -> ServiceStatusState:
        """Publish it in place of what was ours, and withdraw that where it is another Service."""
        if old.owner != new.owner:
            live_service.withdraw(old.access, old.owner, _withdrawing(old))
        return self._publish(new, _addresses(old))

    def delete(self, state: ServiceStatusState) -> None:
        """Withdraw it, unless it belongs to the project that this one is a copy of."""
        if not self.belongs_to_copied_project(state.owner):
            live_service.withdraw(state.access, state.owner, _withdrawing(state))

    def _publish(self, new: ServiceStatusInputs, ours: Collection[str]) -> ServiceStatusState:
        wanted = _said(new)
        if (
            live_service.write(
                new.access, new.owner, lambda live: _kind(new).publishing(live, ours, wanted, _now(), alone=new.alone)
            )
            is None
        ):
            raise ProviderError(f"{new.owner.service} was deleted meanwhile; run again")
        return grown(self.state, new)


def _says(live: Live, state: ServiceStatusState) -> bool:
    """Return whether a Service says what was published."""
    return not differences(_kind(state).standing(live), _addresses(state), _said(state), alone=state.alone)


def _withdrawing(state: ServiceStatusState) -> Callable[[Live], Mapping[str, object] | None]:
    ours = _addresses(state)
    return lambda live: _kind(state).publishing(live, ours, NOTHING, _now())


def _kind(known: ServiceStatusInputs | ServiceStatusState) -> Frontend:
    return frontend(known.owner.service.kind)


def _said(inputs: ServiceStatusInputs | ServiceStatusState) -> Published:
    return Published(inputs.ingress, inputs.conditions)


def _addresses(state: ServiceStatusState) -> list[str]:
    return [entry.ip for entry in state.ingress]


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
