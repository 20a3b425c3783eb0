"""What commands order in a running cluster: told by conditions while it is in force, and nothing of it is left."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.backends import Backend, ask, refused
from tests.support.cluster_services import address, condition, made
from tests.support.control_plane import Objects
from tests.support.overrides import FAILS, answer
from tests.support.stages import Stage
from tests.support.watching import eventually, watching

pytestmark = [pytest.mark.cluster, pytest.mark.envoy]

Backends = Callable[..., Backend]
SERVING, FAULT, DRAINED = (f"local-lb.dev/{word}" for word in ("Serving", "FaultOrdered", "Drained"))


def conditions(cluster: Objects, name: str) -> set[str]:
    """Return the types of the conditions that a Service has."""
    document = cluster.read(name)
    assert document is not None
    return {str(each["type"]) for each in document["status"].get("conditions", ())}


def written(cluster: Objects, name: str) -> object:
    """Return all of a Service that only its users write."""
    document = cluster.read(name)
    assert document is not None
    return document["spec"], document["metadata"].get("annotations")


def test_a_condition_comes_and_goes_with_an_order(cluster: Objects, play: Stage, backend: Backends) -> None:
    """With the least rights, which allow nothing but the status to be written."""
    made(cluster, backend, "web")
    play.up()
    at, before = address(cluster, "web"), written(cluster, "web")
    assert play.run("fault", "web", "--refuse", "100%", "--for", "1h").code == 0
    assert answer(at) in FAILS
    assert conditions(cluster, "web") == {SERVING, FAULT}
    assert condition(cluster, "web")["status"] == "True"
    assert play.run("up", "--yes", "--expect-no-changes").code == 0
    assert play.run("fault", "--undo").code == 0
    assert conditions(cluster, "web") == {SERVING}
    assert play.run("drain", "web").code == 0
    assert refused(at, 8080)
    assert conditions(cluster, "web") == {SERVING, DRAINED}
    assert condition(cluster, "web")["reason"] == "NoBackends"
    assert play.run("drain", "--undo").code == 0
    assert conditions(cluster, "web") == {SERVING}
    assert ask(at, 8080) == "web: hello"
    assert written(cluster, "web") == before


def test_a_condition_goes_with_the_end_and_with_the_stack(cluster: Objects, play: Stage, backend: Backends) -> None:
    """The loop withdraws it at that time; `destroy` before."""
    made(cluster, backend, "web")
    play.up()
    with watching(play) as watch:
        assert play.run("fault", "web", "--hang", "0.01%", "--for", "15s").code == 0
        eventually(lambda: "a fault is ordered by a command" in watch.reported(), watch)
        eventually(lambda: conditions(cluster, "web") == {SERVING}, watch)
    assert play.run("fault", "web", "--hang", "0.01%", "--for", "1h").code == 0
    assert conditions(cluster, "web") == {SERVING, FAULT}
    assert play.run("destroy", "--yes").code == 0
    assert conditions(cluster, "web") == set()
    assert play.run("fault", "--json").json == []
