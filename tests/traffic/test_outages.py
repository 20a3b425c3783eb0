"""What fails beside us: API server, etcd, kube-proxy, proxies. The data plane goes on, and all converges afterwards."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import suppress

import pytest

from tests.support.backends import refused
from tests.support.envoy_traffic import Load
from tests.support.real_nodes import World
from tests.support.stages import Stage, envoys
from tests.support.traffic import (
    DUAL,
    addresses,
    answer,
    follows,
    make,
    sees_endpoints,
    served,
    up_and_serving,
    watching,
)
from tests.support.waiting import becomes

pytestmark = [pytest.mark.cluster, pytest.mark.envoy]


@pytest.fixture
def repaired(world: World) -> Iterator[World]:
    """Return the cluster, whose control plane runs again at the end."""
    yield world
    if "etcd" not in world.plane.processes:
        world.plane.start_etcd()
    if "kube-apiserver" not in world.plane.processes:
        world.plane.start_api()
    world.plane.await_ready()


def has_address(world: World, name: str) -> bool:
    """Return whether the status of a Service has an address."""
    return world.read(name) is not None and addresses(world, name) != []


def recorded(play: Stage, name: str) -> bool:
    """Return whether the state has the proxy of a Service; the loop publishes an address before it writes its state."""
    with suppress(FileNotFoundError):
        return name in play.pids()
    return False


@pytest.mark.parametrize("what", ["kube-apiserver", "etcd"])
def test_an_outage_of_the_control_plane_is_survived(what: str, repaired: World, play: Stage) -> None:
    """Every request is served meanwhile, also by a proxy that was killed; afterwards all is done that was asked."""
    world, plane = repaired, repaired.plane
    for name in ("web", "gone", "killed"):
        make(world, name)
    world.pod("a", world.nodes["kind-worker"])
    sees_endpoints(world, "killed", 1)
    with watching(play):
        for name in ("web", "gone", "killed"):
            becomes(lambda n=name: has_address(world, n), f"{name} has an address")  # type: ignore[misc]
        at, leaving, broken = (addresses(world, name)[0] for name in ("web", "gone", "killed"))
        follows(lambda: answer(at), "a")
        with Load(lambda: answer(at), 20) as requested:
            stop, start = {
                "kube-apiserver": (plane.stop_api, plane.start_api),
                "etcd": (plane.stop_etcd, plane.start_etcd),
            }[what]
            becomes(lambda: recorded(play, "n/killed"), "the state has the proxy")
            stop()
            os.kill(play.pids()["n/killed"], signal.SIGKILL)
            becomes(lambda: answer(broken) == "a", "the killed proxy is replaced, with the API away")
            start()
            plane.await_ready()
            world.delete("gone")
            make(world, "late")
            becomes(lambda: world.read("gone") is None, "what was deleted is gone")
            becomes(lambda: has_address(world, "late"), "what was made has an address")
            follows(lambda: answer(addresses(world, "late")[0]), "a")
        assert requested.failures("a") == []
        assert refused(leaving, 80)
        assert (addresses(world), addresses(world, "killed")) == ([at], [broken])


def test_restarts_of_everything_change_no_address(repaired: World, play: Stage) -> None:
    """Proxy, kube-proxies, API server and etcd, one after the other: every time the same addresses serve."""
    world, plane = repaired, repaired.plane
    make(world, "web", served(80), served(80, "UDP"), **DUAL)
    world.pod("a", world.nodes["kind-worker"])
    up_and_serving(world, play)
    at = addresses(world)

    def kube_proxies() -> None:
        for node in world.nodes.values():
            node.stop_proxy()
            node.start_proxy()
        world.wait_for_nodes()

    def api() -> None:
        plane.stop_api()
        plane.start_api()

    def etcd() -> None:
        plane.stop_etcd()
        plane.start_etcd()
        plane.await_ready()

    def proxy() -> None:
        os.kill(play.pids()["n/web"], signal.SIGKILL)

    for restart in (proxy, kube_proxies, api, etcd):
        restart()
        play.up()
        assert addresses(world) == at
        follows(lambda: {answer(address, 80, protocol) for address in at for protocol in ("TCP", "UDP")}, {"a"})
    assert len(envoys(play.root)) == 1
