"""How many requests `locallb watch` sends to a real API server: counted where they arrive, whatever it has to do."""

from __future__ import annotations

import time
from collections.abc import Callable

import httpx2
import pytest

from locallb.kubernetes.api.writes import SPAN
from tests.support.backends import Backend
from tests.support.cluster_services import ingress, made
from tests.support.control_plane import Objects
from tests.support.faulty_api import FaultyApi, api
from tests.support.loop_figures import unasked
from tests.support.odd_api import MAX
from tests.support.stages import Stage
from tests.support.watching import eventually, get, watching

__all__ = ["api"]

pytestmark = [pytest.mark.cluster, pytest.mark.envoy]
NAMES = [f"s{number}" for number in range(8)]


def test_a_beginning_is_20_requests_in_a_second_at_most_and_a_change_of_everything_so_many_more_as_services_bring(
    api: FaultyApi, cluster: Objects, play: Stage, backend: Callable[..., Backend]
) -> None:
    """Eight Services come at once, a loop that begins checks them without asking for any, and they go at once."""
    play.configure(sources=[api.source])
    with watching(play) as watch:
        eventually(lambda: "converged: " in watch.reported(), watch)
        eventually(lambda: not api.busiest(since=time.monotonic() - SPAN), watch)
        for name in NAMES:
            made(cluster, backend, name)
        eventually(lambda: all(ingress(cluster, name) for name in NAMES), watch)
        eventually(lambda: watch.reported().endswith("converged: 8 Services\n"), watch)
        watch.process.kill()
        watch.process.wait()
    begun = time.monotonic()
    with watching(play, "--metrics", "127.0.0.1:0") as watch:
        eventually(lambda: get(watch, "/readyz")[0] == httpx2.codes.OK, watch)
        requested = api.busiest(since=begun)
        assert requested
        assert len(requested) <= MAX, requested
        assert not [line for line in requested if line.startswith("GET /api/v1/namespaces/")]
        eventually(lambda: not api.busiest(since=time.monotonic() - SPAN), watch)
        for name in NAMES:
            cluster.delete(name)
        eventually(lambda: not any(cluster.read(name) for name in NAMES), watch)
    assert unasked(api) <= MAX, api.busiest()
