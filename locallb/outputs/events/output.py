"""Events of objects of live clusters as an output."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from locallb.config.registry import FRONTENDS
from locallb.kubernetes.events import ingress_events, placement_events, rejection_events
from locallb.model.identities import Owner
from locallb.model.naming import owner_fields
from locallb.model.snapshot import Access
from locallb.model.status_entries import Event
from locallb.outputs.events.service_events import ServiceEvents
from locallb.outputs.output import Output, Planned, Telling
from locallb.planning.planned import Placement, PlannedNews
from locallb.resources.codec import encode, value

if TYPE_CHECKING:
    import pulumi


class Events(Output):
    """Tells what is new, after the status says it."""

    resource_types = (ServiceEvents,)

    def words(self, planned: Planned) -> Sequence[object]:
        """Return the events of now."""
        if planned.news:
            return [[str(news.key), news.owner.uid, value(events)] for news, events in _of_ingresses(planned)]
        return [value(_events(planned))] if planned.access or not isinstance(planned, Placement) else []

    def tells(self, planned: Planned) -> bool:
        """Return whether it lives in a cluster."""
        return bool(planned.news) or (planned.access is not None and planned.key.kind.value in FRONTENDS)

    def declare(self, telling: Telling) -> pulumi.Resource:
        """Declare a ServiceEvents, or one for each Ingress; of several the last is returned."""
        import pulumi  # noqa: PLC0415 - for programs only

        from locallb.resources import declared  # noqa: PLC0415 - as above

        planned = telling.planned
        after = [telling.told["status"]] if "status" in telling.told else list(telling.ready)

        def declare(owner: Owner | None, access: Access | None, events: Sequence[Event]) -> pulumi.Resource:
            return declared.ServiceEvents(
                str(owner.service if owner else planned.key),
                access=encode(access),
                owner=owner_fields(owner) if owner else {},
                events=value(events),
                opts=pulumi.ResourceOptions(parent=telling.parent, depends_on=after),
            )

        if planned.news:
            return [declare(news.owner, news.access, events) for news, events in _of_ingresses(planned)][-1]
        return declare(planned.owner, planned.access, _events(planned))


def _of_ingresses(planned: Planned) -> Sequence[tuple[PlannedNews, Sequence[Event]]]:
    withdrawn = planned.withdrawn if isinstance(planned, Placement) else None
    return [(news, ingress_events(news, withdrawn)) for news in planned.news]


def _events(planned: Planned) -> Sequence[Event]:
    return placement_events(planned) if isinstance(planned, Placement) else rejection_events(planned)


OUTPUT = Events()
