"""Routes to pods through containers: in the networks of proxies, and in this host's table without its rights."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from ipaddress import ip_network
from pathlib import Path

import pytest
import yaml

from locallb.host.netlink import pod_routes_of
from locallb.model.identities import Home, RunIdentity
from locallb.runtimes.planners import HELPER_LABEL
from locallb.runtimes.pod_routes import present_routes
from tests.support.containers import Network, containers, content, docker, docker_only, own_pool, word
from tests.support.host import PYTHON
from tests.support.pod_routes import SERVICE, SLICE, node, node_with_pod, stated
from tests.support.stages import Stage, stage

pytestmark = [
    pytest.mark.docker,
    pytest.mark.envoy,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can put a Node on a Docker network"),
]


@pytest.fixture
def play(image: str, network: Network) -> Iterator[Stage]:
    """Return a stack of two clusters that have the same pod CIDR, each with a Service of one pod."""
    with ExitStack() as stack:
        made = stack.enter_context(stage())
        for number, cluster in enumerate(("a", "b"), 250):
            address = stack.enter_context(node_with_pod(network, number, f"pod of {cluster}"))
            (made.root / cluster).mkdir()
            (made.root / cluster / "all.yaml").write_text(
                yaml.safe_dump_all([SERVICE, SLICE, node("worker", address, "10.244.1.0/24")])
            )
        made.configure(
            sources=[{"manifests": "a"}, {"manifests": "b"}],
            runtime=word(),
            image=image,
            network={"publish": network.name},
            podRoutes="container",
            pools=own_pool(),
        )
        yield made


def answers(play: Stage) -> dict[str, str]:
    rows = play.run("status", "--json").json
    return {row["cluster"]: stated(row["addresses"][0]) for row in rows}


def helpers() -> str:
    """List containers that were to change routes."""
    return docker("ps", "-aq", "--filter", f"label={HELPER_LABEL}")


def test_two_clusters_with_the_same_pods_are_both_served_straight_to_their_pods(play: Stage) -> None:
    """Each by the routes of its own proxies; this host has none, and nothing is left."""
    play.up()
    assert answers(play) == {"a": "pod of a", "b": "pod of b"}
    home = Home("local-lb", "dev", str(play.root.resolve()))
    assert present_routes(home) == frozenset()
    for observed in containers(play).values():
        assert len(present_routes(home, RunIdentity(observed["Id"], word()).container)) == 1
    content(play)
    docker("restart", "-t", "1", *[container["Id"] for container in containers(play).values()])
    play.up()
    assert answers(play) == {"a": "pod of a", "b": "pod of b"}
    assert play.run("destroy", "--yes").code == 0
    assert helpers() == ""


IN_POD = """
import json, sys
from locallb.model.identities import ClusterName, Home, ObjectKey, Owner
from locallb.model.routes import PodRoute
from locallb.runtimes.pod_routes import change_routes, present_routes
home, container = Home(*json.loads(sys.argv[1])), sys.argv[2]
put, remove = ([PodRoute.parse(text) for text in json.loads(texts)] for texts in sys.argv[3:5])
missing = change_routes(Owner(home, ObjectKey(ClusterName("a"), "", "pod-routes")), put, remove, container)
print(json.dumps([len(missing), sorted(map(str, present_routes(home, container)))]))
"""


def in_pod(home: Home, container: str, put: list[str], remove: list[str]) -> list[object]:
    """Change routes where /proc has other processes, as in a pod; return how many failed, and what is there then."""
    apart = ["unshare", "--pid", "--fork", "--mount-proc", PYTHON, "-c", IN_POD]
    terms = [*apart, json.dumps(list(home)), container, json.dumps(put), json.dumps(remove)]
    done = subprocess.run(terms, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    reported: list[object] = json.loads(done.stdout)
    return reported


def test_in_a_pod_the_routes_of_a_proxy_are_read_and_changed_where_they_are(play: Stage) -> None:
    """Although its process can't be seen there, and another one may have its number."""
    play.up()
    home = Home("local-lb", "dev", str(play.root.resolve()))
    observed = containers(play).values()
    assert None not in [pod_routes_of(each["State"]["Pid"], 0) for each in observed]
    assert pod_routes_of(os.getpid(), 0) is None
    for each in observed:
        container = RunIdentity(each["Id"], word()).container
        (route,) = map(str, present_routes(home, container))
        gateway = route.rpartition(" ")[2]
        others = [f"10.232.1.0/24 via {gateway}", f"10.232.2.7/32 via {gateway}"]
        assert in_pod(home, container, [], []) == [0, [route]]
        assert in_pod(home, container, others, []) == [0, sorted([route, *others])]
        assert in_pod(home, container, [route], others[:1]) == [0, sorted([route, others[1]])]
        assert in_pod(home, container, [], others) == [0, [route]]
        assert set(map(str, present_routes(home, container))) == {route}
    assert play.run("destroy", "--yes").code == 0
    assert helpers() == ""


CHANGE = """
import json, sys
from locallb.model.identities import ClusterName, Home, ObjectKey, Owner
from locallb.model.routes import PodRoute
from locallb.runtimes.pod_routes import change_routes
put, remove = ([PodRoute.parse(text) for text in json.loads(texts)] for texts in sys.argv[1:3])
owner = Owner(Home("p", "s", sys.argv[3]), ObjectKey(ClusterName(""), "", "c/pod-routes"))
print(len(change_routes(owner, put, remove)))
"""


def changed(put: list[str], remove: list[str], root: Path) -> str:
    """Change routes of this host as somebody who may use Docker, and not change routes."""
    bare = ["setpriv", "--bounding-set=-net_admin", "--inh-caps=-net_admin", PYTHON, "-c", CHANGE]
    terms = [*bare, json.dumps(put), json.dumps(remove), str(root)]
    done = subprocess.run(terms, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@docker_only
def test_docker_changes_routes_for_users_without_the_right(network: Network, tmp_path: Path) -> None:
    """By a container that is gone afterwards; the same routes twice are no work."""
    gateway = str(ip_network(f"{network.gateway}/24", strict=False)[250])
    one, other = f"10.232.1.0/24 via {gateway}", f"10.232.2.0/24 via {gateway}"
    home = Home("p", "s", str(tmp_path))
    try:
        assert changed([one, other], [], tmp_path) == "0"
        assert {str(route) for route in present_routes(home)} == {one, other}
        assert changed([one], [other], tmp_path) == "0"
        assert {str(route) for route in present_routes(home)} == {one}
    finally:
        changed([], [one, other], tmp_path)
    assert present_routes(home) == frozenset()
    assert helpers() == ""
