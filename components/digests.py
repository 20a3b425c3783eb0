"""Digests of what a load balancer's resources depend on: equal digests mean that nothing is to be done.

Made of the values that its resources get, as canonical JSON, never of how our own types are written: a field of ours
may get another name without touching a load balancer. Not here: what was applied (`locallb.watch.converge`).
"""

from __future__ import annotations

from locallb.kubernetes.events import placement_events, rejection_events
from locallb.kubernetes.service_status import publication
from locallb.model.naming import digest, owner_fields
from locallb.model.snapshot import Access
from locallb.planning.planned import Placement, Rejection
from locallb.resources.codec import encode, value


def balancer_digest(placement: Placement, proxy: str) -> str:
    """Return one word for all inputs of a placement's resources; `proxy` is the digest of its proxy."""
    part = placement.part
    return digest(
        [
            proxy,
            owner_fields(placement.owner),
            [str(address) for address in placement.addresses],
            placement.sharing,
            [str(port) for port in placement.ports],
            [listener.name for port in placement.ports for listener in port.listeners],
            [probe.place for probe in placement.probes],
            [part.part.id, dict(part.rendered.listeners), dict(part.rendered.clusters)] if part else [],
            _told(placement, placement.access) if placement.access else [],
        ]
    )


def rejection_digest(rejection: Rejection) -> str:
    """Return one word for all inputs of the resources that tell a Service why it gets nothing."""
    return digest(
        [
            owner_fields(rejection.owner) if rejection.owner else {},
            encode(rejection.access) if rejection.access else {},
            value(publication(rejection).conditions),
            value(rejection_events(rejection)),
        ]
    )


def _told(placement: Placement, access: Access) -> list[object]:
    """Return what the Service of a live cluster is told."""
    told = publication(placement)
    events = value(placement_events(placement))
    return [encode(access), value(told.ingress), value(told.conditions), placement.take_over, events]
