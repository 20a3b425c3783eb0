"""The output `status`: statuses in live clusters, published once an address is proven, withdrawn at once.

A ServiceStatus has addresses, ports and conditions of a Service; a GatewayStatus is our part of the status of an object
of Gateway API, or of an Ingress. Not here: what a status says (`kubernetes.status`, `gateway.status_patch`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence

from msgspec.structs import replace

from locallb.gateway.status_patch import bad_news, contains, is_stated, status_patch, withdrawn
from locallb.kubernetes.api import live_object
from locallb.kubernetes.api.servers import KubeError
from locallb.kubernetes.api.writes import UNWRITABLE, lacks_right
from locallb.kubernetes.events import WARNING, shortened
from locallb.kubernetes.status import (
    NOTHING,
    SERVED,
    Live,
    Published,
    awaiting,
    differences,
    observed_status,
    publication,
    published,
    published_in,
    publishing,
)
from locallb.model.desired import GATEWAY_STATUS, SERVICE_STATUS, ResourceKey
from locallb.model.desired import DesiredResource as Resource
from locallb.model.fields import JsonObject
from locallb.model.reasons import Event
from locallb.model.texts import owner_fields
from locallb.outputs.output import Output, OutputContext, Planned, waiting_for
from locallb.planning.planned import Placement, PlannedStatus
from locallb.resources.codec import encode, value
from locallb.resources.properties import (
    GatewayStatusInputs,
    GatewayStatusState,
    ServiceStatusInputs,
    ServiceStatusState,
)
from locallb.resources.resource_type import ProviderError, ResourceType, grown


class ServiceStatus(ResourceType[ServiceStatusInputs, ServiceStatusState]):
    """Publishes, repairs and withdraws."""

    def create(self, new: ServiceStatusInputs) -> tuple[str, ServiceStatusState]:
        """Publish it; existing entries of the same addresses are replaced."""
        return str(new.owner.service), self._publish(new, ())

    def read(self, state: ServiceStatusState) -> ServiceStatusState | None:
        """Read our part of the status. An API that doesn't answer proves nothing: it counts as unchanged."""
        return live_object.compare(
            state.access, state.owner, state, lambda live: _contains(live, state), lambda live: _observed(live, state)
        )

    def leaves_nothing(self, state: ServiceStatusState) -> bool:
        """Return whether the status has nothing of ours, or its Service or the whole cluster is gone."""
        return live_object.has_none(state.access, state.owner, lambda live: _has_ours(live, state))

    def update(self, old: ServiceStatusState, new: ServiceStatusInputs) -> ServiceStatusState:
        """Publish it in place of our former part, and withdraw that if it is of another Service."""
        if old.owner != new.owner:
            live_object.withdraw(old.access, old.owner, _withdrawing(old))
        return self._publish(new, _addresses(old))

    def delete(self, state: ServiceStatusState) -> None:
        """Withdraw it, unless it belongs to the project that this one is a copy of."""
        if not self.belongs_to_copied_project(state.owner):
            live_object.withdraw(state.access, state.owner, _withdrawing(state))

    def _publish(self, new: ServiceStatusInputs, ours: Collection[str]) -> ServiceStatusState:
        def publish(live: Live) -> Mapping[str, object] | None:
            return publishing(live, ours, _stated(new), live_object.now(), alone=new.alone)

        if live_object.write(new.access, new.owner, publish) is None:
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
    return lambda live: publishing(live, ours, NOTHING, live_object.now())


def _stated(inputs: ServiceStatusInputs | ServiceStatusState) -> Published:
    stated = Published(inputs.ingress, inputs.conditions)
    return awaiting(stated, inputs.waiting) if inputs.waiting else stated


def _addresses(state: ServiceStatusState) -> list[str]:
    return [entry.ip for entry in state.ingress]


class GatewayStatus(ResourceType[GatewayStatusInputs, GatewayStatusState]):
    """Publishes, repairs and withdraws. An object that is gone has no status, and none is missed."""

    def create(self, new: GatewayStatusInputs) -> tuple[str, GatewayStatusState]:
        return str(new.owner.service), self._publish(new)

    def read(self, state: GatewayStatusState) -> GatewayStatusState | None:
        """Check whether the status is still published. An API that doesn't answer proves nothing: it is unchanged."""
        silent = replace(state, status="{}")
        return live_object.compare(
            state.access, state.owner, state, lambda live: _has_status(live, state), lambda _live: silent
        )

    def leaves_nothing(self, state: GatewayStatusState) -> bool:
        """Return whether nothing of ours remains, or the object or the whole cluster is gone."""
        return live_object.has_none(state.access, state.owner, is_stated)

    def update(self, old: GatewayStatusState, new: GatewayStatusInputs) -> GatewayStatusState:
        """Publish it in place of our former part. The status of another object is gone with that object."""
        del old
        return self._publish(new)

    def delete(self, state: GatewayStatusState) -> None:
        """Withdraw it, unless it belongs to the project that this one is a copy of."""
        if self.belongs_to_copied_project(state.owner):
            return
        wanted, stated = withdrawn(_decoded(state)), _decoded(state)

        def decide(live: Live) -> Mapping[str, object] | None:
            theirs = "loadBalancer" in stated and not _has_status(live, state)
            is_ours = is_stated(live) and not theirs
            return status_patch(live, wanted, state.generation, live_object.now()) if is_ours else None

        live_object.withdraw(state.access, state.owner, decide)

    def _publish(self, new: GatewayStatusInputs) -> GatewayStatusState:
        """Write it, and send its new refusals as events.

        Raises ProviderError, with one sentence for all objects of a cluster if the right is missing.
        """
        stated, kind = _decoded(new), new.owner.service.kind
        news: tuple[tuple[str, str], ...] = ()

        def decide(live: Live) -> Mapping[str, object] | None:
            nonlocal news
            patch = status_patch(live, stated, new.generation, live_object.now())
            news = bad_news(live.get("status") or {}, stated) if patch else ()
            return patch

        if why := UNWRITABLE.why(new.access, kind):
            raise ProviderError(why)
        try:
            exists = live_object.write(new.access, new.owner, decide) is not None
        except KubeError as error:
            if not lacks_right(error):
                raise
            raise ProviderError(UNWRITABLE.refused(new.access, kind)) from error
        UNWRITABLE.written(new.access, kind)
        for reason, note in news if exists else ():
            live_object.report_to(new.access, new.owner, Event(WARNING, reason, shortened(note)))
        return grown(self.state, new)


def _has_status(live: Live, state: GatewayStatusState) -> bool:
    return contains(live, _decoded(state), state.generation)


def _decoded(existing: GatewayStatusInputs) -> JsonObject:
    status: JsonObject = json.loads(existing.status)
    return status


class Status(Output):
    """Publishes addresses, ports and conditions."""

    resource_types = (ServiceStatus, GatewayStatus)

    def resources(self, planned: Planned, context: OutputContext) -> Sequence[Resource]:
        """Return a ServiceStatus, or the GatewayStatus of a Gateway or of each Ingress."""
        statuses = planned.statuses if isinstance(planned, Placement) else ()
        if statuses := (*filter(None, [planned.status]), *statuses):
            return [status_resource(status, context) for status in statuses]
        access = published_in(planned)
        if access is None:
            return ()
        published = publication(planned)
        inputs = {
            "access": encode(access),
            "owner": owner_fields(planned.owner) if planned.owner else {},
            "ingress": value(published.ingress),
            "conditions": value(published.conditions),
            "alone": isinstance(planned, Placement) and planned.take_over,
        }
        if SERVED in published.conditions:
            inputs["waiting"] = waiting_for(planned)
        return (Resource(ResourceKey(SERVICE_STATUS, str(planned.key)), inputs, context.parent, context.ready),)


def status_resource(planned: PlannedStatus, context: OutputContext) -> Resource:
    """Return the resource that publishes the status of one object of Gateway API, or of an Ingress."""
    inputs = {
        "access": encode(planned.access),
        "owner": owner_fields(planned.owner),
        "status": planned.status,
        "generation": planned.generation,
    }
    return Resource(ResourceKey(GATEWAY_STATUS, str(planned.key)), inputs, context.parent, context.ready)


OUTPUT = Status()
