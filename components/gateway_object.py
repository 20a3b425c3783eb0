"""A route, ListenerSet or GatewayClass of a live cluster, for its status."""

from __future__ import annotations

from collections.abc import Sequence

import pulumi

from locallb.model.state_resource import GATEWAY_OBJECT
from locallb.outputs.status.gateway_status import declare_status
from locallb.planning.planned import PlannedStatus


class GatewayObject(pulumi.ComponentResource):
    """Has the status, and nothing that serves; it is told once all is `ready`."""

    def __init__(self, planned: PlannedStatus, ready: Sequence[pulumi.Resource] = ()) -> None:
        shown = {"uid": planned.owner.uid, "digest": planned.digest}
        super().__init__(GATEWAY_OBJECT, str(planned.key), shown)
        declare_status(planned, self, ready)
        self.register_outputs({})
