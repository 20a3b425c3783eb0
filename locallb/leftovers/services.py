"""Leftover finalizers: Services of live clusters that have ours although no state knows them.

Ours for certain is what the ledger has for this stack; of the others only those count that wait to be deleted, that
this stack would serve, and that have our condition of a Service with an address: the finalizer has the same name as
those of other controllers. What `up` takes up again by itself is no leftover.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from msgspec import Struct

from locallb.config.settings import Settings
from locallb.kubernetes.access.errors import KubeError
from locallb.kubernetes.api import live_service
from locallb.kubernetes.frontend import frontend, frontends
from locallb.kubernetes.parsing.objects import parse_objects
from locallb.kubernetes.status_patch import (
    NOTHING,
    SERVING,
    Live,
    has_finalizer,
    is_deleted,
    releasing,
)
from locallb.ledger.ledger import Ledger
from locallb.leftovers.claims import every_claim
from locallb.model.identities import ClusterName, Home, ObjectKey, Owner, Uid
from locallb.model.objects import MalformedService, Service
from locallb.model.reasons import WITHOUT_ADDRESS
from locallb.model.snapshot import Access
from locallb.planning.selection import is_ours
from locallb.storage import paths


class OrphanedService(Struct, frozen=True):
    """A Service that waits for a finalizer that no state knows."""

    owner: Owner
    access: Access
    addresses: tuple[str, ...] = ()
    """What the ledger has for it: entries of the status that are ours."""

    def __str__(self) -> str:
        return str(self.owner.service)

    def let_go(self) -> None:
        """Withdraw what is ours, the finalizer last. Raises KubeError, ProviderError."""
        access, owner = self.access, self.owner
        kind = frontend(self.owner.service.kind)
        live_service.withdraw(access, owner, lambda live: kind.publishing(live, self.addresses, NOTHING, ""))
        live_service.withdraw(access, owner, releasing)


def orphaned_services(
    home: Home, settings: Settings, clusters: Mapping[ClusterName, Access], existing: Collection[ObjectKey]
) -> Iterator[OrphanedService]:
    """Find them in the clusters that answer; `existing` are those in the state of stack `home`."""
    claims = [claim for path in paths.ledgers() for claim in every_claim(Ledger(path)) if claim.owner.home == home]
    claim_key: dict[ObjectKey, list[str]] = {}
    for claim in claims:
        claim_key.setdefault(claim.owner.service, []).append(str(claim.address))
    for cluster, access in clusters.items():
        for service in _services(access):
            kind = frontends()[service["kind"]].kind
            key = ObjectKey(cluster, service["metadata"]["namespace"], service["metadata"]["name"], kind)
            if (
                has_finalizer(service)
                and key not in existing
                and _is_orphaned(cluster, service, settings, claim_key=key in claim_key)
            ):
                uid = Uid(str(service["metadata"]["uid"]))
                yield OrphanedService(Owner(home, key, uid), access, tuple(claim_key.get(key, ())))


def _is_orphaned(cluster: ClusterName, service: Live, settings: Settings, *, claim_key: bool) -> bool:
    selected = _is_selected(cluster, service, settings)
    if is_deleted(service):
        conditions = frontends()[service["kind"]].published(service, ()).conditions
        served = any(each.type == SERVING and each.reason not in WITHOUT_ADDRESS for each in conditions)
        return claim_key or (selected and served)
    return claim_key and not selected


def _is_selected(cluster: ClusterName, live: Live, settings: Settings) -> bool:
    parsed = parse_objects(cluster, [live])
    services: list[Service | MalformedService] = [*parsed.services, *parsed.malformed]
    return any(is_ours(service, settings) for service in services)


def _services(access: Access) -> list[Live]:
    """List them; none where the cluster doesn't answer: what it has is not known."""
    from locallb.kubernetes.api.client import Cluster  # noqa: PLC0415 - stacks of manifests need no client

    try:
        return [document for document in Cluster(access).objects() if document["kind"] in frontends()]
    except KubeError:
        return []
