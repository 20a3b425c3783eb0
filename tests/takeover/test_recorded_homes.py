"""Homes that earlier versions wrote are taken over without an operation on anything that serves.

A home is what a version left on a host: project, state, ledger, directories of proxies, and what ran then. `homes/1`
was recorded from commit 2981389, `homes/2` from a3eb49a, `homes/3` from 66567c1, each by that version's own `up`
(`record`). Recorded homes are never changed: a version that can't take one over breaks a promise to its users.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable

import pytest

from tests.support.clusters import cluster, plane
from tests.support.containers import containers
from tests.support.control_plane import ControlPlane, Objects
from tests.support.docker_image import image
from tests.support.gateway_clients import answering, service, web
from tests.support.gateway_objects import backend, gateway_class, route, rule
from tests.support.recorded_homes import restored
from tests.support.stages import Stage
from tests.support.takeover_laws import is_followed_untouched, stays_untouched

__all__ = ["cluster", "image", "plane"]
pytestmark = pytest.mark.envoy

Law = Callable[..., None]
each_law = pytest.mark.parametrize("law", [stays_untouched, is_followed_untouched])

TOLD = ("ServiceStatus", "ServiceEvents")


@pytest.mark.root
@pytest.mark.parametrize("home", ["1/per-service", "1/shared", "3/mapped"])
@each_law
def test_processes_live_on(law: Law, home: str) -> None:
    """Each Service's own Envoy, a spare one, those of the stack, or those at ports of 127.0.0.1."""
    with restored(home) as stage:
        law(stage)


@pytest.mark.root
def test_a_spare_of_an_earlier_version_goes_to_no_gateway() -> None:
    """It lacks what HTTP needs and waits on for a Service; the Gateway gets a proxy of its own."""
    with restored("1/per-service") as stage, answering("one") as one:
        before = stage.pids()
        assert "/spare-1" in before
        stage.write("gateway.yaml", gateway_class(), web(), route(rule("/", backends=[backend("one")])))
        stage.write("one.yaml", service("one", one))
        stage.up()
        after = stage.pids()
        assert before.items() <= after.items()
        assert after.keys() - before.keys() == {"shop/web"}


@pytest.mark.root(only="can make routes in a network of its own")
@each_law
def test_routes_to_pods_stay(law: Law) -> None:
    """Routes of `podRoutes` lead to pods that are backends; how NodePorts stand by behind them is told otherwise."""
    with restored("2/pods") as stage:
        law(stage, routes, {"update ProxyConfig c/n/web"})


@pytest.mark.docker
@pytest.mark.root(only="can have a container of root's group")
@pytest.mark.parametrize("home", ["1/docker", "1/published"])
@each_law
def test_containers_live_on(law: Law, home: str, image: str) -> None:
    """With the runtime docker, on the host's network and with published ports."""
    del image
    with restored(home) as stage:
        law(stage, lambda: lives(stage))


@pytest.mark.cluster
@each_law
def test_a_cluster_is_not_written_to(law: Law, plane: ControlPlane, cluster: Objects) -> None:
    """Finalizers, statuses and events of Services that serve are as they were left: none has another version.

    Why `nobody` gets no address is told in other words.
    """
    cluster.clear()
    with restored("1/cluster", plane) as stage:
        law(stage, lambda: written(cluster), {f"update {kind} live/n/nobody" for kind in TOLD})


def routes() -> str:
    terms = ["ip", "-json", "route", "show", "table", "all", "proto", "78"]
    return subprocess.run(terms, check=True, capture_output=True, text=True).stdout


def lives(stage: Stage) -> dict[str, tuple[str, str]]:
    """Return which containers run, and since when."""
    return {name: (observed["Id"], observed["State"]["StartedAt"]) for name, observed in containers(stage).items()}


def written(cluster: Objects) -> object:
    """Return each Service that serves as its API has it, and its events."""
    return {name: (cluster.read(name), cluster.events(name)) for name in ("web", "local")}
