"""A thousand Services in a real API: planned at once, each told an address of its own, and found again by it.

Without proxies: what is tested is that plan and API keep up, and that a status is enough to keep an address.
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from ipaddress import IPv4Network
from pathlib import Path

import pytest
from pulumi.provider.experimental.property_value import PropertyValue

from locallb.config.parsing import parse_settings
from locallb.config.settings import Settings
from locallb.kubernetes.status import publication
from locallb.model.identities import ClusterName, Home
from locallb.model.snapshot import HostFacts, Snapshot
from locallb.model.texts import owner_fields
from locallb.outputs.status import ServiceStatus
from locallb.planning.plan import make_plan
from locallb.planning.planned import Placement
from locallb.provider.claims import ServiceClaim
from locallb.resources.codec import decode, encode, value
from locallb.resources.properties import ServiceClaimInputs, ServiceStatusInputs
from locallb.sources.entries import KubernetesSource
from locallb.sources.kubernetes.reading import read_kubernetes
from tests.support.client_kinds import SERVICE
from tests.support.control_plane import Objects
from tests.support.manifests import port, service

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

COUNT = 1000
POOL = IPv4Network("127.78.0.0/22")
THREADS = 8


def test_a_thousand_services_get_distinct_addresses_and_are_reported(cluster: Objects, tmp_path: Path) -> None:
    """Every status has the address that was planned, and the next plan is the same by the statuses alone."""
    names = [f"s{number:04}" for number in range(COUNT)]
    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(lambda name: cluster.service(service(name, port(80, 0))), names))
        pools = [{"name": "p", "addresses": [str(POOL)]}]
        settings = parse_settings({"sources": [cluster.plane.source], "pools": pools})
        first = planned(settings, cluster, tmp_path)
        assert len({address for placement in first for address in placement.addresses}) == COUNT
        list(pool.map(report_to, first))
    reported = {
        item["metadata"]["name"]: item["status"]["loadBalancer"]["ingress"][0]["ip"]
        for item in cluster.client.list(SERVICE, namespace="n")
    }
    assert reported == {placement.key.name: str(placement.addresses[0]) for placement in first}
    retry = planned(settings, cluster, tmp_path)
    assert {placement.key: placement.addresses for placement in retry} == {
        placement.key: placement.addresses for placement in first
    }


def planned(settings: Settings, cluster: Objects, root: Path) -> tuple[Placement, ...]:
    """Read the cluster and plan, for a host that has room for all."""
    source = KubernetesSource(ClusterName(cluster.plane.name), str(cluster.plane.kubeconfig), loopback_backends=True)
    read = read_kubernetes(source, root, root / "readings")
    snapshot = Snapshot(
        Home("local-lb", "dev", str(root)),
        services=read.reading.parsed.services,
        nodes=read.reading.parsed.nodes,
        host=HostFacts(),
        access={source.cluster: read.access},
    )
    return make_plan(snapshot, settings).placements


def report_to(placement: Placement) -> None:
    """Do what the resources of a load balancer do to its Service."""
    assert placement.access
    both: dict[str, object] = {"access": encode(placement.access), "owner": owner_fields(placement.owner)}
    ServiceClaim(None).create(decode(ServiceClaimInputs, properties(both.items())))
    reported = publication(placement)
    status = {**both, "ingress": value(reported.ingress), "conditions": value(reported.conditions), "alone": False}
    ServiceStatus(None).create(decode(ServiceStatusInputs, properties(status.items())))


def properties(fields: Iterable[tuple[str, object]]) -> dict[str, PropertyValue]:
    """Write fields as the engine hands them to a provider."""
    return {name: value(given) for name, given in fields}
