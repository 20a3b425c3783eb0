"""A Service of a live cluster that gets nothing, and is told why."""

from __future__ import annotations

import pulumi

from components.digests import rejection_digest
from locallb.kubernetes.events import rejection_events
from locallb.kubernetes.service_status import publication
from locallb.model.identities import Owner
from locallb.model.naming import owner_fields
from locallb.model.snapshot import Access
from locallb.planning.planned import Rejection
from locallb.resources.codec import encode, value
from locallb.resources.declared import ServiceEvents, ServiceStatus


class Rejected(pulumi.ComponentResource):
    """A load balancer without a part that serves.

    It has the type and the name of one that serves, so that its status is the same resource: who is rejected after
    having served loses the addresses in its status before they stop to answer.
    """

    def __init__(self, rejection: Rejection, owner: Owner, access: Access) -> None:
        key = str(rejection.key)
        shown = {"addresses": [], "ports": [], "uid": owner.uid, "digest": rejection_digest(rejection)}
        super().__init__("locallb:index:LoadBalancer", key, shown)
        status = ServiceStatus(
            key,
            access=encode(access),
            owner=owner_fields(owner),
            ingress=[],
            conditions=value(publication(rejection).conditions),
            alone=False,
            opts=pulumi.ResourceOptions(parent=self),
        )
        ServiceEvents(
            key,
            access=encode(access),
            owner=owner_fields(owner),
            events=value(rejection_events(rejection)),
            opts=pulumi.ResourceOptions(parent=self, depends_on=[status]),
        )
        self.register_outputs({})
