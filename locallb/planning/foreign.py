"""Services of other controllers: their status has only foreign addresses, and nothing requests ours.

A cloud's controller, MetalLB or another local-lb serves them, and DNS may publish their status. They are left
alone: no address, no finalizer, condition or event. A Service that this stack served stays its own, also after a lost
state. Not here: removing foreign entries from the status of our Services (`kubernetes.status_patch`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from locallb.config.settings import Settings
from locallb.model.formatting import few
from locallb.model.identities import IPAddress, ObjectKey, ObjectKind
from locallb.model.objects import Service
from locallb.model.reasons import Problem, Reason
from locallb.model.snapshot import Snapshot
from locallb.planning.addresses.port_mapping import LOOPBACK


def served_by_others(theirs: Iterable[Service], snapshot: Snapshot) -> Mapping[ObjectKey, Problem]:
    """Return which Services with only foreign addresses are left to another controller, and why."""
    claims = (*snapshot.claims, *snapshot.remembered)
    held = {claim.owner.service for claim in claims if claim.owner.home == snapshot.home}
    return {service.key: _problem(service) for service in theirs if service.key not in held}


def has_only_foreign_addresses(service: Service, settings: Settings) -> bool:
    """Return whether another controller serves a Service of a running cluster, by its status."""
    if settings.take_over or not (service.ingress or service.hostnames) or service.was_served:
        return False
    if service.key.kind is not ObjectKind.SERVICE or service.load_balancer_class in settings.classes.names:
        return False
    return not any(_may_be_ours(entry.address, settings) for entry in service.ingress)


def _may_be_ours(address: IPAddress, settings: Settings) -> bool:
    """Return whether an address is in a pool, or the one that all Services share."""
    if settings.port_mapping:
        return address in LOOPBACK.values()
    return any(address in span for pool in settings.pools for span in pool.ranges)


def _problem(service: Service) -> Problem:
    addresses = few([*(str(entry.address) for entry in service.ingress), *service.hostnames])
    return Problem(
        Reason.SERVED_BY_ANOTHER,
        f"{service.key}: its status has {addresses}, which isn't ours: another controller serves it, so it is left"
        " alone; if that one is gone, set local-lb:takeOver, or give the Service a class that local-lb:classes names",
    )
