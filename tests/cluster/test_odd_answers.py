"""`locallb watch` on a real API server that answers oddly for a while: nothing is lost, all converges afterwards."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from random import Random

import pytest

from tests.support.backends import Backend
from tests.support.cluster_services import address, made
from tests.support.control_plane import Objects
from tests.support.faulty_api import FaultyApi, api
from tests.support.odd_api import Answers
from tests.support.stages import Stage
from tests.support.watching import answers, eventually, watching

__all__ = ["api"]

pytestmark = [pytest.mark.cluster, pytest.mark.envoy]
LASTS = 6.0
"""Seconds that a fault lasts: several tries of each follower."""


@pytest.mark.parametrize("kind", ["rubbish in lists", "rubbish in watches", "watches that close at once", "gone"])
def test_odd_answers_lose_nothing_and_are_not_asked_for_too_often(
    api: FaultyApi, cluster: Objects, play: Stage, backend: Callable[..., Backend], kind: str
) -> None:
    """What serves goes on; a Service that came meanwhile is served once the API answers again."""
    play.configure(sources=[api.source])
    with watching(play, "--json") as watch:
        made(cluster, backend, "web")
        eventually(lambda: answers(address(cluster, "web"), 8080, "web"), watch)
        at, quiet = address(cluster, "web"), len(api.times)
        faults = Answers(api, Random(7))
        faults.kinds[kind]()
        cluster.plane.stop_api()  # ends the watches that are open
        cluster.plane.start_api()
        threading.Event().wait(LASTS)
        made(cluster, backend, "late")
        assert answers(at, 8080, "web")
        faults.end()
        eventually(lambda: answers(address(cluster, "late"), 8080, "late"), watch)
        assert answers(at, 8080, "web")
        assert len(api.times) > quiet
        faults.check()
        events = [json.loads(line)["event"] for line in watch.reported().splitlines()]
        assert "thread" not in events
