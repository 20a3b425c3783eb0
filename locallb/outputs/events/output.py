"""Events of objects of live clusters as an output."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from locallb.kubernetes.events import ENSURED, ingress_events, placement_events, rejection_events
from locallb.kubernetes.status import published_in
from locallb.model.desired import SERVICE_EVENTS, ResourceKey
from locallb.model.desired import DesiredResource as Resource
from locallb.model.identities import ObjectKey, Owner
from locallb.model.reasons import Event
from locallb.model.snapshot import Access
from locallb.model.texts import owner_fields
from locallb.outputs.events.service_events import ServiceEvents
from locallb.outputs.output import Output, OutputContext, Planned, waiting_for
from locallb.planning.planned import Placement
from locallb.resources.codec import encode, value


class Events(Output):
    """Sends news, after they are in the status."""

    resource_types = (ServiceEvents,)

    def resources(self, planned: Planned, context: OutputContext) -> Sequence[Resource]:
        """Return a ServiceEvents, or one for each Ingress."""
        after = (context.published["status"],) if "status" in context.published else context.ready
        return [
            Resource(
                ResourceKey(SERVICE_EVENTS, str(key)),
                {
                    "access": encode(access),
                    "owner": owner_fields(owner) if owner else {},
                    "events": value(events),
                    **_waiting(planned, events),
                },
                context.parent,
                after,
            )
            for key, owner, access, events in _events(planned)
        ]


def _events(planned: Planned) -> Iterator[tuple[ObjectKey, Owner | None, Access, Sequence[Event]]]:
    """Return the objects that have events."""
    if planned.news:
        withdrawn = planned.withdrawn if isinstance(planned, Placement) else None
        ports = planned.ports if isinstance(planned, Placement) else ()
        unanswered = [port.unanswered for port in ports if port.unanswered]
        for news in planned.news:
            yield news.key, news.owner, news.access, ingress_events(news, withdrawn, unanswered)
    elif access := published_in(planned):
        events = placement_events(planned) if isinstance(planned, Placement) else rejection_events(planned)
        yield planned.key, planned.owner, access, events


def _waiting(planned: Planned, events: Sequence[Event]) -> Mapping[str, object]:
    """Return the reference to what is waited for where it is news that all of a Service serves."""
    if planned.news or not isinstance(planned, Placement) or any(port.unanswered for port in planned.ports):
        return {}
    if not any(event.reason == ENSURED for event in events):
        return {}
    return {"waiting": waiting_for(planned)}


OUTPUT = Events()
