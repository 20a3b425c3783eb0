"""What serves nothing and has a status: a rejected Service, and a route, ListenerSet or GatewayClass."""

from __future__ import annotations

from collections.abc import Sequence

import pulumi

from components.digests import rejection_digest
from locallb.model.identities import Owner
from locallb.model.state_resource import BALANCER, GATEWAY_OBJECT
from locallb.outputs.output import tell
from locallb.outputs.status.gateway_status import declare_status
from locallb.planning.planned import PlannedStatus, Rejection


class Rejected(pulumi.ComponentResource):
    """A load balancer without a part that serves: its status says why.

    It has the type and the name of one that serves, so that its status is the same resource: who is rejected after
    having served loses the addresses in its status before they stop to answer.
    """

    def __init__(self, rejection: Rejection, owner: Owner) -> None:
        key = str(rejection.key)
        shown = {"addresses": [], "ports": [], "uid": owner.uid, "digest": rejection_digest(rejection)}
        super().__init__(BALANCER, key, shown)
        tell(rejection, self, [])
        self.register_outputs({})


class GatewayObject(pulumi.ComponentResource):
    """An object of a live cluster beside its Gateways; it is told once all is `ready`."""

    def __init__(self, planned: PlannedStatus, ready: Sequence[pulumi.Resource] = ()) -> None:
        shown = {"uid": planned.owner.uid, "digest": planned.digest}
        super().__init__(GATEWAY_OBJECT, str(planned.key), shown)
        declare_status(planned, self, ready)
        self.register_outputs({})
