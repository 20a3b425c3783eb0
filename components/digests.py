"""Digests of all inputs of a load balancer's resources: equal digests mean that there is nothing to do.

Made of canonical JSON of the values, never of how our own types are written: a field of ours may be renamed without an
update of any load balancer. Not here: what was applied (`locallb.watch.converging.converge`).
"""

from __future__ import annotations

from locallb.model.identities import Digest
from locallb.model.naming import digest, owner_fields
from locallb.outputs.output import words
from locallb.planning.planned import Placement, Rejection


def balancer_digest(placement: Placement, proxy: Digest) -> Digest:
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
            words(placement),
            *([str(name) for name in placement.names]),
        ]
    )


def rejection_digest(rejection: Rejection) -> Digest:
    """Return one word for all inputs of the resources that tell a Service why it gets nothing."""
    return digest(
        [
            owner_fields(rejection.owner) if rejection.owner else {},
            *words(rejection),
        ]
    )
