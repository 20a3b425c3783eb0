"""ServiceClaim: our finalizer on a Service, so that it stays until everything made for it is gone."""

from __future__ import annotations

from collections.abc import Mapping

from locallb.kubernetes.api import live_object
from locallb.kubernetes.events import DELETED, NORMAL
from locallb.kubernetes.status import FINALIZER, Live, claiming, has_finalizer, is_deleted, releasing
from locallb.model.reasons import Event
from locallb.resources.properties import ServiceClaimInputs, ServiceClaimState
from locallb.resources.resource_type import ProviderError, ResourceType, grown


class ServiceClaim(ResourceType[ServiceClaimInputs, ServiceClaimState]):
    """Sets the finalizer and takes it away."""

    inputs = ServiceClaimInputs
    state = ServiceClaimState

    def preview_outputs(self, new: ServiceClaimInputs, old: ServiceClaimState | None) -> Mapping[str, object]:
        del new, old
        return {"finalizer": FINALIZER}

    def create(self, new: ServiceClaimInputs) -> tuple[str, ServiceClaimState]:
        """Set it, unless the Service is on its way out."""
        if live_object.write(new.access, new.owner, _claiming) is None:
            raise ProviderError(f"{new.owner.service} was deleted meanwhile; run again")
        return str(new.owner.service), grown(self.state, new, finalizer=FINALIZER)

    def read(self, state: ServiceClaimState) -> ServiceClaimState | None:
        """Check whether it is there. An API that doesn't answer says nothing, so nothing is known to have changed."""
        return live_object.compare(state.access, state.owner, state, has_finalizer, lambda _live: None)

    def leaves_nothing(self, state: ServiceClaimState) -> bool:
        """Return whether it isn't there, or its cluster is gone for good."""
        return live_object.has_none(state.access, state.owner, has_finalizer)

    def update(self, old: ServiceClaimState, new: ServiceClaimInputs) -> ServiceClaimState:
        """Claim the Service of now, then let go of the one before, if it is another one."""
        claimed = self.create(new)[1]
        if old.owner != new.owner:
            live_object.withdraw(old.access, old.owner, releasing)
        return claimed

    def delete(self, state: ServiceClaimState) -> None:
        """Take it away, unless it belongs to the project that this one is a copy of."""
        if not self.belongs_to_copied_project(state.owner):
            live_object.withdraw(state.access, state.owner, releasing)
            live_object.report_to(state.access, state.owner, Event(NORMAL, DELETED, "nothing of it is left"))


def _claiming(service: Live) -> Mapping[str, object] | None:
    if is_deleted(service) and not has_finalizer(service):
        raise ProviderError(f"Service {service['metadata']['name']} is being deleted and can't be claimed; run again")
    return claiming(service)
