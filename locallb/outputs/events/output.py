"""Events of objects of live clusters as an output."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from locallb.config.registry import FRONTENDS
from locallb.kubernetes.events import placement_events, rejection_events
from locallb.model.naming import owner_fields
from locallb.model.status_entries import Event
from locallb.outputs.events.service_events import ServiceEvents
from locallb.outputs.output import Output, Planned, Telling
from locallb.planning.planned import Placement
from locallb.resources.codec import encode, value

if TYPE_CHECKING:
    import pulumi


class Events(Output):
    """Tells what is new, after the status says it."""

    resource_types = (ServiceEvents,)

    def words(self, planned: Planned) -> Sequence[object]:
        """Return the events of now."""
        return [value(_events(planned))] if planned.access or not isinstance(planned, Placement) else []

    def tells(self, planned: Planned) -> bool:
        """Return whether it lives in a cluster."""
        return planned.access is not None and planned.key.kind.value in FRONTENDS

    def declare(self, telling: Telling) -> pulumi.Resource:
        """Declare a ServiceEvents."""
        import pulumi  # noqa: PLC0415 - for programs only

        from locallb.resources import declared  # noqa: PLC0415 - as above

        planned = telling.planned
        return declared.ServiceEvents(
            str(planned.key),
            access=encode(planned.access),
            owner=owner_fields(planned.owner) if planned.owner else {},
            events=value(_events(planned)),
            opts=pulumi.ResourceOptions(parent=telling.parent, depends_on=[telling.told["status"]]),
        )


def _events(planned: Planned) -> Sequence[Event]:
    return placement_events(planned) if isinstance(planned, Placement) else rejection_events(planned)


OUTPUT = Events()
