"""`locallb watch` on a real API server that answers oddly for a while: nothing is lost, all converges afterwards."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

from tests.cluster.controlplane import ControlPlane, Objects
from tests.cluster.faulty import FaultyApi, faulty_api
from tests.cluster.test_life import address, made
from tests.e2e.support import Backend, Stage
from tests.e2e.watching import answers, becomes, watching
from tests.soak.answers import Answers

pytestmark = [pytest.mark.cluster, pytest.mark.envoy]
LASTS = 6.0
"""Seconds that a fault lasts: several tries of each follower."""


@pytest.fixture
def api(plane: ControlPlane, tmp_path: Path) -> Iterator[FaultyApi]:
    """Put the faulty API between local-lb and the cluster."""
    with faulty_api(plane, tmp_path / "faulty") as made_here:
        yield made_here


@pytest.mark.parametrize("kind", ["rubbish in lists", "rubbish in watches", "watches that close at once", "gone"])
def test_odd_answers_lose_nothing_and_are_not_asked_for_too_often(
    api: FaultyApi, cluster: Objects, play: Stage, backend: Callable[..., Backend], kind: str
) -> None:
    """What serves goes on; a Service that came meanwhile is served once the API answers again."""
    play.configure(sources=[api.source])
    with watching(play, "--json") as watch:
        made(cluster, backend, "web")
        becomes(lambda: answers(address(cluster, "web"), 8080, "web"), watch)
        at, quiet = address(cluster, "web"), len(api.times)
        faults = Answers(api, Random(7))
        faults.kinds[kind]()
        cluster.plane.stop_api()  # ends the watches that are open
        cluster.plane.start_api()
        threading.Event().wait(LASTS)
        made(cluster, backend, "late")
        assert answers(at, 8080, "web")
        faults.end()
        becomes(lambda: answers(address(cluster, "late"), 8080, "late"), watch)
        assert answers(at, 8080, "web")
        assert len(api.times) > quiet
        faults.check()
        events = [json.loads(line)["event"] for line in watch.reported().splitlines()]
        assert "thread" not in events
