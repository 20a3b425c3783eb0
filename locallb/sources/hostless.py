"""Manifests alone, read where nothing runs: no state, no ledger, no facts of a host, no last good reading.

For comparing two revisions where neither is deployed, as in CI. The host counts as one without limits, which has every
address; where that needn't be so it is told.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from locallb.config.settings import Settings
from locallb.model.identities import Home
from locallb.model.snapshot import Claim, HeldProxy, HeldProxyAssignment, Snapshot
from locallb.planning.addresses.pool_routes import unchecked
from locallb.planning.planned import Plan
from locallb.sources.snapshot import SnapshotResult
from locallb.sources.source import source_type


def read_hostless(home: Home, settings: Settings, root: Path, nowhere: Path) -> SnapshotResult:
    """Read the manifests of every source, relative to `root`.

    `nowhere` is a directory without readings: what can't be read is left out and complained of.

    Raises:
        SourceError: if a source's directory can't be read, or a source is a running cluster.

    """
    read = [source_type(one.type).compared(one, root, nowhere) for one in settings.sources]
    snapshot = Snapshot(
        home,
        services=tuple(one for each in read for one in each.parsed.services),
        malformed=tuple(one for each in read for one in each.parsed.malformed),
        nodes=tuple(one for each in read for one in each.parsed.nodes),
        slices=tuple(one for each in read for one in each.parsed.slices),
        external_ips=frozenset(one for each in read for one in each.parsed.external_ips),
    )
    complaints = tuple(sentence for each in read for sentence in each.stale)
    return SnapshotResult(
        snapshot, complaints, _flat([*(each.parsed.notices for each in read), unchecked(settings.pools)])
    )


def holding(snapshot: Snapshot, plan: Plan) -> Snapshot:
    """Return the snapshot as it would be after `plan` was carried out: its addresses and proxies are held."""
    claims = tuple(Claim(address, one.owner) for one in plan.placements for address in one.addresses)
    return replace(
        snapshot,
        claims=claims,
        remembered=claims,
        proxies=tuple(HeldProxy(one.key, one.proxy.discovery) for one in plan.proxies if one.key.cluster),
        stack_proxies=tuple(one.proxy.name for one in plan.proxies if not one.key.cluster),
        seats=tuple(HeldProxyAssignment(one.key, one.proxy) for one in plan.placements if one.part),
    )


def _flat(some: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    return tuple(one for each in some for one in each)
