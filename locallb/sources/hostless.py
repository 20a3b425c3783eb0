"""Snapshots of manifests alone: no state, no ledger, no facts of a host, no last good reading.

For comparing two revisions where neither is deployed, as in CI. The host counts as one without limits that has every
address; a notice says where the result depends on that.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from msgspec.structs import replace

from locallb.config.settings import Settings
from locallb.model.identities import Home, Protocol
from locallb.model.serving import Listener, Proxy
from locallb.model.snapshot import Claim, HeldProxy, HeldProxyAssignment, Snapshot
from locallb.planning.addresses.pool_routes import unchecked
from locallb.planning.planned import Plan
from locallb.sources.authority import unknown_authority
from locallb.sources.snapshot import SnapshotResult, flat, with_objects
from locallb.sources.source import source_type


def read_hostless(home: Home, settings: Settings, root: Path, nowhere: Path) -> SnapshotResult:
    """Read the manifests of every source, relative to `root`.

    `nowhere` is a directory without readings: what can't be read is left out and complained of.

    Raises:
        SourceError: if a source's directory can't be read, or a source is a running cluster.

    """
    read = [source_type(source.type).compared(source, root, nowhere) for source in settings.sources]
    notices = [*(reading.parsed.notices for reading in read), unchecked(settings.pools)]
    snapshot = replace(with_objects(home, [reading.parsed for reading in read]), authority=unknown_authority(settings))
    return SnapshotResult(snapshot, flat(reading.stale for reading in read), flat(notices))


def holding(snapshot: Snapshot, plan: Plan) -> Snapshot:
    """Return the snapshot as it would be after `plan` was carried out: its addresses and proxies are held."""
    claims = tuple(
        Claim(address, placement.owner, placement.mapped)
        for placement in plan.placements
        for address in placement.addresses
    )
    return replace(
        snapshot,
        claims=claims,
        remembered=claims,
        proxies=tuple(
            HeldProxy(
                proxy.root,
                proxy.proxy.discovery,
                patient=_patient(proxy.proxy.listeners),
                may_fail=next((listener.may_fail for listener in proxy.proxy.http), None),
                heap=proxy.proxy.heap,
                udp_only=proxy.proxy.udp_only,
                datagrams=_datagrams(proxy.proxy),
            )
            for proxy in plan.proxies
            if proxy.root.cluster
        ),
        stack_proxies=tuple(proxy.proxy.name for proxy in plan.proxies if not proxy.key.cluster),
        http_proxies=frozenset(proxy.proxy.name for proxy in plan.proxies if proxy.proxy.may_serve_http),
        heaps={
            proxy.proxy.name: proxy.proxy.heap
            for proxy in plan.proxies
            if not proxy.key.cluster and proxy.proxy.heap is not None
        },
        assignments=(
            *(
                HeldProxyAssignment(placement.key, placement.proxy, _patient(placement.part.part.listeners))
                for placement in plan.placements
                if placement.part
            ),
            *(HeldProxyAssignment(proxy.root, proxy.proxy.name, whole=True) for proxy in plan.proxies if proxy.serves),
        ),
    )


def _datagrams(proxy: Proxy) -> frozenset[str]:
    """Return the places of UDP listeners as `HeldProxy.datagrams` has them."""
    udp = (listener.place for listener in proxy.listeners if listener.protocol is Protocol.UDP)
    return frozenset((*udp, *proxy.released))


def _patient(listeners: Iterable[Listener]) -> bool | None:
    """Return what the state would say of listeners (`HeldProxy.patient`)."""
    return next((listener.patient for listener in listeners if listener.protocol is Protocol.TCP), None)
