"""Pods of real kubelets behind LoadBalancer Services, while `locallb watch` runs: what clients of this host get."""

from __future__ import annotations

import pytest

from tests.e2e.watching import Watch
from tests.kubelets.workloads import Workloads, answer
from tests.traffic.waiting import eventually

pytestmark = [pytest.mark.cluster, pytest.mark.kubelets, pytest.mark.envoy]


def names(address: str, port: int = 80, times: int = 20) -> set[str]:
    """Ask many times, and return all that answered."""
    return {answer(address, port) for _ in range(times)}


def test_a_deployment_serves(world: Workloads, watch: Watch) -> None:
    """Every pod gets requests."""
    world.deploy("web", 2)
    world.expose("web")
    at = world.address("web")
    eventually(lambda: names(at) == set(world.pods("web")), f"both pods answer at {at}\n{watch.told()}")
