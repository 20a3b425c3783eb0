"""Orphans: DNS names and Services of live clusters that have something of this stack although no state knows them.

An orphaned name has a marker of this stack; names in embedded zones are removed with their proxy. A finalizer is
certainly ours if the ledger has the Service's claim for this stack. Our finalizer has the same name as that of other
controllers, so any other Service counts only if it waits to be deleted, this stack would serve it, and it has our
condition of a Service with an address. A Service that `up` serves again by itself is no orphan.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from msgspec import Struct

from locallb.config.settings import Settings
from locallb.dns.owner_ids import owner_id
from locallb.dns.provider import DnsProvider, open_zone
from locallb.dns.updates import Marker, removing
from locallb.kubernetes.api import live_object
from locallb.kubernetes.api.servers import KubeError
from locallb.kubernetes.object_parsing import parse_objects
from locallb.kubernetes.status import (
    NOTHING,
    SERVING,
    Live,
    has_finalizer,
    is_deleted,
    published,
    publishing,
    releasing,
)
from locallb.ledger.ledger import Ledger
from locallb.leftovers import every_claim
from locallb.model.errors import ClientError
from locallb.model.identities import ClusterName, Home, ObjectKey, Owner, Uid
from locallb.model.objects import MalformedService, Service
from locallb.model.reasons import WITHOUT_ADDRESS
from locallb.model.snapshot import Access
from locallb.planning.selection import is_ours
from locallb.storage import paths


class OrphanedName(Struct, frozen=True):
    """A name that no state knows."""

    name: str
    marker: Marker
    zone: DnsProvider

    def let_go(self) -> None:
        """Remove it, unless another owner has it by now. Raises DnsProviderError."""
        if update := removing(self.name, self.marker, self.zone.records(self.name)):
            self.zone.apply(update, 0)


def orphaned_names(home: Home, settings: Settings, root: Path, existing: Collection[str]) -> Iterator[OrphanedName]:
    """Find them in the zones that can be read; `existing` are the names in the state of stack `home`."""
    for zone in settings.dns.zones if settings.dns else ():
        if server := zone.updated:
            provider = open_zone(zone.name, server, root)
            try:
                names = sorted(set(provider.names(server.owner or owner_id(home))), key=lambda pair: pair[0])
            except ClientError:
                continue
            yield from (OrphanedName(name, marker, provider) for name, marker in names if name not in existing)


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
        live_object.withdraw(access, owner, lambda live: publishing(live, self.addresses, NOTHING, ""))
        live_object.withdraw(access, owner, releasing)


def orphaned_services(
    home: Home, settings: Settings, clusters: Mapping[ClusterName, Access], existing: Collection[ObjectKey]
) -> Iterator[OrphanedService]:
    """Find them in the clusters that answer; `existing` are those in the state of stack `home`."""
    claims = [claim for path in paths.ledgers() for claim in every_claim(Ledger(path)) if claim.owner.home == home]
    claimed: dict[ObjectKey, list[str]] = {}
    for claim in claims:
        claimed.setdefault(claim.owner.service, []).append(str(claim.address))
    for cluster, access in clusters.items():
        for service in _services(access):
            key = ObjectKey(cluster, service["metadata"]["namespace"], service["metadata"]["name"])
            if (
                has_finalizer(service)
                and key not in existing
                and _is_orphaned(cluster, service, settings, is_claimed=key in claimed)
            ):
                uid = Uid(str(service["metadata"]["uid"]))
                yield OrphanedService(Owner(home, key, uid), access, tuple(claimed.get(key, ())))


def _is_orphaned(cluster: ClusterName, service: Live, settings: Settings, *, is_claimed: bool) -> bool:
    selected = _is_selected(cluster, service, settings)
    if is_deleted(service):
        conditions = published(service, ()).conditions
        served = any(each.type == SERVING and each.reason not in WITHOUT_ADDRESS for each in conditions)
        return is_claimed or (selected and served)
    return is_claimed and not selected


def _is_selected(cluster: ClusterName, live: Live, settings: Settings) -> bool:
    parsed = parse_objects(cluster, [live])
    services: list[Service | MalformedService] = [*parsed.services, *parsed.malformed]
    return any(is_ours(service, settings) for service in services)


def _services(access: Access) -> list[Live]:
    """List them; none where the cluster doesn't answer: what it has is not known."""
    from locallb.kubernetes.api.client import Cluster  # noqa: PLC0415 - stacks of manifests need no client

    try:
        return [document for document in Cluster(access).objects() if document["kind"] == "Service"]
    except KubeError:
        return []
