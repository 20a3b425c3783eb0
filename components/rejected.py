"""A Service of a live cluster that is rejected: its status says why."""

from __future__ import annotations

import pulumi

from components.digests import rejection_digest
from locallb.model.identities import Owner
from locallb.model.state_resource import BALANCER
from locallb.outputs.output import tell
from locallb.planning.planned import Rejection


class Rejected(pulumi.ComponentResource):
    """A load balancer without a part that serves.

    It has the type and the name of one that serves, so that its status is the same resource: who is rejected after
    having served loses the addresses in its status before they stop to answer.
    """

    def __init__(self, rejection: Rejection, owner: Owner) -> None:
        key = str(rejection.key)
        shown = {"addresses": [], "ports": [], "uid": owner.uid, "digest": rejection_digest(rejection)}
        super().__init__(BALANCER, key, shown)
        tell(rejection, self, [])
        self.register_outputs({})
