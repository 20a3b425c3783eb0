"""The status of objects of live clusters as an output: once an address is proven, at once where it is withdrawn."""

from __future__ import annotations

from collections.abc import Sequence

from locallb.kubernetes.status import SERVED, publication, published_in
from locallb.model.desired import GATEWAY_STATUS, SERVICE_STATUS, ResourceKey
from locallb.model.desired import DesiredResource as Resource
from locallb.model.texts import owner_fields
from locallb.outputs.output import Output, OutputContext, Planned, waiting_for
from locallb.outputs.status.gateway_status import GatewayStatus
from locallb.outputs.status.service_status import ServiceStatus
from locallb.planning.planned import Placement, PlannedStatus
from locallb.resources.codec import encode, value


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
