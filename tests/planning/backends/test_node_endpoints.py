"""Services without a selector, with EndpointSlices of their own that name Nodes, as self-hosted shoots have them."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from locallb.config.parsing import parse_settings
from locallb.model.identities import ContextName
from locallb.model.snapshot import Access, HostFacts
from locallb.planning.plan import make_plan
from locallb.planning.planned import Plan
from locallb.sources.snapshot import with_objects
from tests.planning.node_routes import BRIDGE
from tests.support.objects import DEMO, endpoints, node, parsed, service
from tests.support.strategies import HOME

NODES = node("a", "172.18.0.2", "fd00:10::2"), node("b", "172.18.0.3", "fd00:10::3")
ADDRESSES = {"IPv4": ("172.18.0.2", "172.18.0.3"), "IPv6": ("fd00:10::2", "fd00:10::3")}
CLUSTER_IPS = {"IPv4": "10.2.0.7", "IPv6": "fd00:10:2::7"}
PORTS = ({"name": "https", "port": 443, "protocol": "TCP"},)


def exposure(*families: str) -> dict[str, Any]:
    """Make such a Service; its API gave it a NodePort, as any of its type."""
    ports = [{"name": "https", "port": 443, "nodePort": 30443}]
    given = [CLUSTER_IPS[family] for family in families]
    dual: dict[str, Any] = {"ipFamilyPolicy": "PreferDualStack", "ipFamilies": list(families), "clusterIPs": given}
    return service("exposure", ports=ports, selector=None, **dual)


def slice_of(family: str) -> dict[str, Any]:
    """Make the slice of a family: no Pod, no Node's name, no condition."""
    entries = [{"addresses": [address], "conditions": {}} for address in ADDRESSES[family]]
    return endpoints(*entries, name=f"exposure-{family.lower()}", service="exposure", family=family, ports=PORTS)


def plan_of(*families: str, routes: bool = True) -> Plan:
    settings = parse_settings(
        {
            "sources": [{"kubernetes": {"name": "demo"}}],
            "pools": [{"name": "p", "addresses": ["172.18.255.224/27", "fd00:ff::e0/123"]}],
        }
    )
    slices = (slice_of(family) for family in families)
    host = HostFacts(routes=(BRIDGE,), routed=(BRIDGE.destination,)) if routes else HostFacts()
    snapshot = with_objects(HOME, [parsed(exposure(*families), *NODES, *slices)], settings.services)
    access = {DEMO: Access("/kubeconfig", ContextName("demo"))}
    return make_plan(replace(snapshot, access=access, host=host), settings)


@pytest.mark.parametrize("families", [("IPv4",), ("IPv6",), ("IPv4", "IPv6"), ("IPv6", "IPv4")])
@pytest.mark.parametrize("routes", [True, False])
def test_each_family_is_served_by_the_nodes_that_its_slices_name(families: tuple[str, ...], routes: bool) -> None:  # noqa: FBT001 - a parameter
    """With a route straight to their ports, otherwise by NodePorts, which lead there too; each by its own family."""
    plan = plan_of(*families, routes=routes)
    (placement,) = plan.placements
    assert sorted(f"IPv{address.version}" for address in placement.addresses) == sorted(families)
    (port,) = placement.ports
    assert port.problem is None
    upstreams = {upstream.name: upstream for each in plan.proxies for upstream in each.proxy.upstreams}
    reached = {str(backend.address): backend.port for name in port.upstreams for backend in upstreams[name].backends}
    assert reached.keys() == {address for family in families for address in ADDRESSES[family]}
    straight = {address for address in ADDRESSES["IPv4"] if routes}
    assert reached == {address: 443 if address in straight else 30443 for address in reached}
