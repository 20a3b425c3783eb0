"""The status of objects of live clusters as an output."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from locallb.config.registry import FRONTENDS
from locallb.kubernetes.frontend import frontend
from locallb.model.naming import owner_fields
from locallb.outputs.output import Output, Planned, Telling
from locallb.outputs.status.gateway_status import GatewayStatus, declare_status
from locallb.outputs.status.service_status import ServiceStatus
from locallb.planning.planned import Placement, PlannedStatus
from locallb.resources.codec import encode, value

if TYPE_CHECKING:
    import pulumi


class Status(Output):
    """Tells what it got once that is proven, and at once that it is withdrawn or gets nothing."""

    resource_types = (ServiceStatus, GatewayStatus)

    def words(self, planned: Planned) -> Sequence[object]:
        """Return where it is written, and all that is."""
        if planned.key.kind.value not in FRONTENDS:
            return planned.status.words if planned.status else _words_of_ingresses(planned)
        published, where = (
            frontend(planned.key.kind).publication(planned),
            encode(planned.access) if planned.access else {},
        )
        if isinstance(planned, Placement):
            return [where, value(published.ingress), value(published.conditions), planned.take_over] if where else []
        return [where, value(published.conditions)]

    def tells(self, planned: Planned) -> bool:
        """Return whether it lives in a cluster."""
        return bool(planned.status or _statuses(planned)) or (
            planned.access is not None and planned.key.kind.value in FRONTENDS
        )

    def declare(self, telling: Telling) -> pulumi.Resource:
        """Declare a ServiceStatus, or a GatewayStatus; of several Ingresses the last is returned."""
        if statuses := [*filter(None, [telling.planned.status]), *_statuses(telling.planned)]:
            return [declare_status(status, telling.parent, telling.ready) for status in statuses][-1]
        import pulumi  # noqa: PLC0415 - for programs only

        from locallb.resources import declared  # noqa: PLC0415 - as above

        planned = telling.planned
        published = frontend(planned.key.kind).publication(planned)
        return declared.ServiceStatus(
            str(planned.key),
            access=encode(planned.access),
            owner=owner_fields(planned.owner) if planned.owner else {},
            ingress=value(published.ingress),
            conditions=value(published.conditions),
            alone=isinstance(planned, Placement) and planned.take_over,
            opts=pulumi.ResourceOptions(parent=telling.parent, depends_on=list(telling.ready)),
        )


def _statuses(planned: Planned) -> Sequence[PlannedStatus]:
    return planned.statuses if isinstance(planned, Placement) else ()


def _words_of_ingresses(planned: Planned) -> Sequence[object]:
    return [[str(status.key), status.owner.uid, *status.words] for status in _statuses(planned)]


OUTPUT = Status()
