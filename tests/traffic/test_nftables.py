"""The contract where kube-proxy works by nftables: it then listens on other addresses, for NodePorts and for checks.

The same tests as with iptables, those that depend on kube-proxy.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from tests.traffic.conftest import machine_if_root
from tests.traffic.nodes import World
from tests.traffic.test_contract import (
    test_a_pod_that_is_not_ready_gets_no_traffic,
    test_a_service_serves_tcp_and_udp_over_both_families,
    test_families_come_and_go,
    test_source_ranges_hold_for_tcp_and_udp_in_both_families,
    test_without_a_pod_clients_are_refused_and_the_address_stays,
    web,
)
from tests.traffic.test_nodes import (
    test_a_hanging_kube_proxy_takes_its_node_out,
    test_a_node_without_kube_proxy_is_passed_over_under_policy_cluster,
    test_a_pod_that_moves_gracefully_costs_no_request,
    test_the_last_pod_drains,
    test_under_policy_local_both_families_are_served,
    test_under_policy_local_only_nodes_with_endpoints_are_reached,
    worker,
    worker2,
)

__all__ = [
    "test_a_hanging_kube_proxy_takes_its_node_out",
    "test_a_node_without_kube_proxy_is_passed_over_under_policy_cluster",
    "test_a_pod_that_is_not_ready_gets_no_traffic",
    "test_a_pod_that_moves_gracefully_costs_no_request",
    "test_a_service_serves_tcp_and_udp_over_both_families",
    "test_families_come_and_go",
    "test_source_ranges_hold_for_tcp_and_udp_in_both_families",
    "test_the_last_pod_drains",
    "test_under_policy_local_both_families_are_served",
    "test_under_policy_local_only_nodes_with_endpoints_are_reached",
    "test_without_a_pod_clients_are_refused_and_the_address_stays",
    "web",
    "worker",
    "worker2",
]

pytestmark = [pytest.mark.cluster, pytest.mark.envoy]


@pytest.fixture(scope="module")
def machine() -> Iterator[World]:
    """Run a machine of its own for this module."""
    if shutil.which("nft", path="/usr/sbin:/sbin:/usr/bin:/bin") is None:
        pytest.skip("needs nft, of the package nftables")
    yield from machine_if_root("nftables")
