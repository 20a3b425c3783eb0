"""The output `events`: news of objects of live clusters as Kubernetes events, each sent once.

Not here: what is news (`kubernetes.events`), and pacing requests (`kubernetes.api.writes`).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence

from msgspec.structs import replace

from locallb.kubernetes.api import live_object
from locallb.kubernetes.api.writes import HELD_WARNINGS
from locallb.kubernetes.events import (
    BURST,
    DELETING,
    ENSURED,
    NORMAL,
    EventAllowance,
    ingress_events,
    news,
    placement_events,
    rejection_events,
    spend,
)
from locallb.kubernetes.status import published_in
from locallb.model.desired import SERVICE_EVENTS, ResourceKey
from locallb.model.desired import DesiredResource as Resource
from locallb.model.identities import ObjectKey, Owner
from locallb.model.reasons import Event
from locallb.model.snapshot import Access
from locallb.model.texts import owner_fields
from locallb.outputs.output import Output, OutputContext, Planned, waiting_for
from locallb.planning.planned import Placement, PlannedNews
from locallb.resources.codec import encode, value
from locallb.resources.properties import ServiceEventsInputs, ServiceEventsState
from locallb.resources.resource_type import ResourceType, grown


class ServiceEvents(ResourceType[ServiceEventsInputs, ServiceEventsState]):
    """Sends what is new. An event that can't be sent is lost, as everywhere in Kubernetes."""

    def create(self, new: ServiceEventsInputs) -> tuple[str, ServiceEventsState]:
        return str(new.owner.service), _send(new, _current(new), EventAllowance(), {})

    def read(self, state: ServiceEventsState) -> ServiceEventsState:
        """Return the state unchanged: sent events can't be read back."""
        return state

    def leaves_nothing(self, state: ServiceEventsState) -> bool:
        """Return True: sent events are not deleted."""
        del state
        return True

    def update(self, old: ServiceEventsState, new: ServiceEventsInputs) -> ServiceEventsState:
        """Send what is new, all for another Service of the same name; a Warning that ended in time is never sent."""
        sent, current = (_current(old), _current(new)) if old.owner == new.owner else ((), ())
        withdrawn = HELD_WARNINGS.withdraw(old.owner, current)
        allowance = EventAllowance(min(BURST, old.tokens + len(withdrawn)), old.since)
        return _send(new, news(sent, _current(new)), allowance, withdrawn if old.owner == new.owner else {})

    def delete(self, state: ServiceEventsState) -> None:
        """Report the end of service, if it ever served; a copy of another project's resource reports nothing."""
        HELD_WARNINGS.withdraw(state.owner, ())
        if not self.belongs_to_copied_project(state.owner) and any(
            event.reason == ENSURED for event in _current(state)
        ):
            live_object.report_to(state.access, state.owner, Event(NORMAL, DELETING, "is served no longer"))


def _current(inputs: ServiceEventsInputs) -> tuple[Event, ...]:
    """Return the events of the situation: that it serves is none as long as that isn't known."""
    return tuple(event for event in inputs.events if not (inputs.waiting and event.reason == ENSURED))


def _send(
    new: ServiceEventsInputs, events: Sequence[Event], allowance: EventAllowance, withdrawn: Mapping[Event, float]
) -> ServiceEventsState:
    """Send events; a Warning in place of a withdrawn one of the same reason waits no longer than that would have."""
    allowed, remaining = spend(allowance, len(events), int(time.time()))
    for event in events[:allowed]:
        not_before = min((due for other, due in withdrawn.items() if other.reason == event.reason), default=None)
        live_object.report_to(new.access, new.owner, event, not_before)
    return grown(ServiceEventsState, new, tokens=remaining.tokens, since=remaining.since)


class Events(Output):
    """Sends news, after they are in the status."""

    resource_types = (ServiceEvents,)

    def resources(self, planned: Planned, context: OutputContext) -> Sequence[Resource]:
        """Return a ServiceEvents, or one for each Ingress."""
        after = (context.published["status"],) if "status" in context.published else context.ready
        return [
            _resource(key, owner, access, events, replace(context, ready=after), **_waiting(planned, events))
            for key, owner, access, events in _events(planned)
        ]


def event_resource(planned: PlannedNews, context: OutputContext) -> Resource:
    """Return the resource that sends the events of an object of which the stack publishes nothing else."""
    return _resource(planned.key, planned.owner, planned.access, ingress_events(planned), context)


def _resource(
    key: ObjectKey,
    owner: Owner | None,
    access: Access,
    events: Sequence[Event],
    context: OutputContext,
    **more: object,
) -> Resource:
    inputs = {
        "access": encode(access),
        "owner": owner_fields(owner) if owner else {},
        "events": value(events),
        **more,
    }
    return Resource(ResourceKey(SERVICE_EVENTS, str(key)), inputs, context.parent, context.ready)


def _events(planned: Planned) -> Iterator[tuple[ObjectKey, Owner | None, Access, Sequence[Event]]]:
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
