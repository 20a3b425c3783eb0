"""A seed and two shoots on real Nodes: Services of each are served by its own machines, which are pods of the seed."""

from __future__ import annotations

from pathlib import Path

import pytest
from lightkube import Client

from locallb.runtimes.docker.engine_api import Containers
from locallb.runtimes.docker.runtime import make_image
from tests.kubelets.routes import made, proxies, to_pods
from tests.kubelets.seeds import Shoot, entries, istio_gateways, shoots
from tests.kubelets.workloads import answer
from tests.support.containers import own_pool
from tests.support.kubelet_cluster import ROLES, Cluster, kubelet_cluster
from tests.support.stages import Stage, stage
from tests.support.waiting import becomes
from tests.support.watching import Watch, watching

pytestmark = [pytest.mark.cluster, pytest.mark.kubelets, pytest.mark.envoy]


def configure(play: Stage, cluster: Cluster, **more: object) -> None:
    """Have a stack serve the seed and its shoots, with routes."""
    play.configure(sources=[seed_entry(cluster)], podRoutes="host", **more)


def seed_entry(cluster: Cluster, name: str = "seed") -> dict[str, object]:
    return {"gardener": {"name": name, "kubeconfig": str(cluster.plane.root / "owner.kubeconfig")}}


def serves(shoot: Shoot, machine: str, watch: Watch) -> str:
    """Wait until a shoot's Service has an address, at which this machine answers; return it."""
    becomes(lambda: bool(shoot.served_at()), f"{shoot.name} is told an address\n{watch.reported()}")
    at = shoot.served_at()
    becomes(lambda: answer(at) == machine, f"{machine} answers\n{watch.reported()}")
    return at


def served(client: Client, namespace: str, name: str, port: int, watch: Watch) -> str:
    """Wait until a Service of the seed has an address, at which its pod answers with its name; return it."""
    where = f"{namespace}/{name}"
    becomes(lambda: bool(entries(client, namespace, name)), f"{where} is told an address\n{watch.reported()}")
    (address,) = entries(client, namespace, name)
    becomes(lambda: answer(address, port) == name, f"{where} answers\n{watch.reported()}")
    return address


def test_shoots_are_served_by_their_own_machines(cluster: Cluster, tmp_path: Path) -> None:
    """A machine is replaced by one elsewhere; a shoot sleeps, keeps its address, and wakes; nothing is left behind."""
    with shoots(cluster, tmp_path, "shoot--local--a", "shoot--local--b") as (a, b), stage() as play:
        configure(play, cluster)
        first, other = a.start_machine("worker"), b.start_machine("worker2")
        pod_paths = {
            (f"{shoot.address(name)}/32", cluster.node(role).addresses[0])
            for shoot, name, role in ((a, first, "worker"), (b, other, "worker2"))
        }
        a.serve()
        b.serve()
        with watching(play, "--plain") as watch:
            places = [serves(a, first, watch), serves(b, other, watch)]
            assert {way for way in made(play) if ":" not in way[0]} == pod_paths
            a.end_machines()
            assert serves(a, a.start_machine("worker2"), watch) == places[0]
            b.hibernate(asleep=True)
            b.end_machines()
            becomes(lambda: not pod_paths & made(play), f"no route leads to machines that are gone\n{watch.reported()}")
            b.hibernate(asleep=False)
            assert serves(b, b.start_machine("worker"), watch) == places[1]
        assert play.run("destroy", "--yes").code == 0
        assert to_pods(cluster) == ""


def test_a_seeds_gateways_and_bastions_are_served_and_no_bastion_is_taken_for_a_machine(
    cluster: Cluster, tmp_path: Path
) -> None:
    """Each zone's gateway has an address of its own, those of older layouts by pins: a bastion's by a pattern."""
    with (
        shoots(cluster, tmp_path, "shoot--local--c") as (shoot,),
        istio_gateways(shoot.seed, "0", "1") as places,
        stage() as play,
    ):
        wanted = {f"{places[0][0]}/{places[0][1]}": [play.at(10)], "infra-*/bastion-*": [play.at(22)]}
        configure(play, cluster, pins=wanted)
        with watching(play, "--plain") as watch:
            addresses = [served(shoot.seed, *place, 443, watch) for place in places]
            assert addresses[0] == play.at(10)
            assert len(set(addresses)) == len(places)
            assert [answer(address, 8443) for address in addresses] == [name for _, name in places]
            machine = shoot.start_machine("worker")
            shoot.start_bastion("b1")
            shoot.serve()
            assert served(shoot.seed, shoot.infra, "bastion-b1", 22, watch) == play.at(22)
            serves(shoot, machine, watch)
            assert {way for way, _ in made(play) if ":" not in way} == {f"{shoot.address(machine)}/32"}
        assert play.run("destroy", "--yes").code == 0
        assert [entries(shoot.seed, *place) for place in places] == [[]] * len(places)
        assert to_pods(cluster) == ""


def test_shoots_of_two_seeds_with_the_same_ranges_are_served_each_by_its_own_machines(
    cluster: Cluster, tmp_path: Path
) -> None:
    """One stack: each proxy has the routes to its own shoot's machines and no others, and this host has none."""
    with (
        kubelet_cluster(sibling=cluster, roles=ROLES[:2]) as sibling,
        shoots(cluster, tmp_path / "one", "shoot--local--d") as (one,),
        shoots(sibling, tmp_path / "two", "shoot--local--e") as (two,),
        stage() as play,
    ):
        assert cluster.plane.ranges.pods == sibling.plane.ranges.pods
        play.configure(
            sources=[seed_entry(cluster), seed_entry(sibling, "other")],
            runtime="docker",
            image=make_image(Containers()),
            network={"publish": cluster.network},
            podRoutes="container",
            pools=own_pool(),
        )
        machines = {shoot: shoot.start_machine("worker") for shoot in (one, two)}
        for shoot in machines:
            shoot.serve()
        expected = {
            frozenset({(f"{shoot.address(name)}/32", shoot.cluster.node("worker").addresses[0])})
            for shoot, name in machines.items()
        }
        with watching(play, "--plain") as watch:
            for shoot, name in machines.items():
                serves(shoot, name, watch)
        present = {frozenset(way for way in made(play, proxy) if ":" not in way[0]) for proxy in proxies(play)}
        assert present == expected
        assert play.run("destroy", "--yes").code == 0
        assert to_pods(cluster) == ""
