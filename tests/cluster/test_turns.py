"""How many requests `locallb watch` sends to a real API server: counted where they arrive, whatever it has to do."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx2
import pytest

from locallb.kubernetes.api.writes import SPAN
from tests.cluster.controlplane import ControlPlane, Objects
from tests.cluster.faulty import FaultyApi, faulty_api
from tests.cluster.test_life import ingress, made
from tests.e2e.support import Backend, Stage
from tests.e2e.watching import becomes, get, watching
from tests.soak.answers import MAX
from tests.soak.figures import unasked

pytestmark = [pytest.mark.cluster, pytest.mark.envoy]
NAMES = [f"s{number}" for number in range(8)]


@pytest.fixture
def api(plane: ControlPlane, tmp_path: Path) -> Iterator[FaultyApi]:
    """Count between local-lb and the cluster."""
    with faulty_api(plane, tmp_path / "faulty") as made_here:
        yield made_here


def test_a_beginning_is_20_requests_in_a_second_at_most_and_a_change_of_everything_so_many_more_as_services_bring(
    api: FaultyApi, cluster: Objects, play: Stage, backend: Callable[..., Backend]
) -> None:
    """Eight Services come at once, a loop that begins checks them without asking for any, and they go at once."""
    play.configure(sources=[api.source])
    with watching(play) as watch:
        becomes(lambda: "converged: " in watch.reported(), watch)
        becomes(lambda: not api.busiest(since=time.monotonic() - SPAN), watch)
        for name in NAMES:
            made(cluster, backend, name)
        becomes(lambda: all(ingress(cluster, name) for name in NAMES), watch)
        becomes(lambda: watch.reported().endswith("converged: 8 Services\n"), watch)
        watch.process.kill()
        watch.process.wait()
    begun = time.monotonic()
    with watching(play, "--metrics", "127.0.0.1:0") as watch:
        becomes(lambda: get(watch, "/readyz")[0] == httpx2.codes.OK, watch)
        requested = api.busiest(since=begun)
        assert requested
        assert len(requested) <= MAX, requested
        assert not [line for line in requested if line.startswith("GET /api/v1/namespaces/")]
        becomes(lambda: not api.busiest(since=time.monotonic() - SPAN), watch)
        for name in NAMES:
            cluster.delete(name)
        becomes(lambda: not any(cluster.read(name) for name in NAMES), watch)
    assert unasked(api) <= MAX, api.busiest()
