"""What only Podman has: a service that proxies don't need, and users who are root in their own containers alone."""

from __future__ import annotations

import json
import os
import queue
import shutil
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from locallb.host.capabilities import PODMAN
from locallb.runtimes.docker.runtime import make_image
from locallb.runtimes.podman import PodmanContainers
from locallb.sources.entries import KindClusters
from locallb.sources.kind import ADMIN, CLUSTER_LABEL, PROVIDER, ROLE_LABEL, SOURCE, find_clusters
from tests.support.environment import lent
from tests.support.host import Done, Project, project, requested, served
from tests.support.manifests import node, port, service
from tests.support.podman import Podman, podman

pytestmark = [
    pytest.mark.docker,
    pytest.mark.envoy,
    pytest.mark.skipif(
        os.geteuid() != 0 or not shutil.which("podman"),
        reason="only root can act as other users, and Podman must be installed",
    ),
]
USER = 65534
PORT = 30080
PREPARE = """
ip link set lo up
mount -t tmpfs -o mode=755 none /run
mkdir /run/lock
if mknod {root}/tun c 10 200 2>/dev/null && [ -e /dev/net/tun ]; then
  chmod 666 {root}/tun
  mount --bind {root}/tun /dev/net/tun
fi
"""
"""Nothing lies over /proc: then no other user may mount one in a container. Anybody may have networks of one's own."""
NODE = "10.232.7.9"
NODE_CONFIG = {
    "@type": "type.googleapis.com/envoy.extensions.filters.network.direct_response.v3.Config",
    "response": {"inline_string": f"hello from {PORT}\n"},
}
LISTENER = {
    "address": {"socket_address": {"address": "0.0.0.0", "port_value": PORT}},
    "filter_chains": [{"filters": [{"name": "direct_response", "typed_config": NODE_CONFIG}]}],
}


@dataclass(frozen=True)
class Place:
    """A project of a user, and that user's Podman."""

    project: Project
    engine: Podman

    def run(self, *terms: str) -> Done:
        """Run a command of ours as the user: one's own Podman is found, root's is named, as the machine has another."""
        named = "" if self.engine.user else self.engine.host
        places = {"XDG_RUNTIME_DIR": self.engine.runtime, PODMAN: named}
        return self.project.locallb(*terms, user=self.engine.user, **places)

    def up(self, *terms: str) -> str:
        """Run `up`, which must succeed, and return the address of `web`."""
        done = self.run("up", "--yes", *terms)
        assert done.code == 0, done.out + done.err
        (row,) = self.run("status", "--json").json
        return str(row["addresses"][0])

    def mapped(self) -> int:
        """Return the number at which clients find the port of `web`."""
        (row,) = self.run("status", "--json").json
        return int(row["ports"][0]["mapped"])

    def answers(self, at: str) -> list[str]:
        """Ask `web`."""
        return requested(self.project.space, f"{at}@8080")

    def containers(self) -> list[str]:
        """Return the ids of those that run or ran."""
        return self.engine.run("ps", "-a", "-q", "--no-trunc").split()


def test_a_cluster_of_kind_in_podman_is_found_and_its_end_is_heard(tmp_path: Path) -> None:
    """By the labels of its control plane; with its administrator's kubeconfig, as in Docker."""
    with podman() as engine, lent({PODMAN: engine.host, PROVIDER: "podman"}), closing(PodmanContainers()) as client:
        labels = {CLUSTER_LABEL: "shop", ROLE_LABEL: "control-plane"}
        config = {"Image": make_image(client), "Cmd": ["--config-yaml", "{}"], "Labels": labels, "Hostname": "shop"}
        identity = client.create("shop", {**config, "HostConfig": {"NetworkMode": "none"}})
        kubeconfig = {
            "clusters": [{"cluster": {"server": "https://192.0.2.1:6443"}}],
            "users": [{"user": {"token": "t"}}],
        }
        client.put(identity, ADMIN.lstrip("/"), yaml.safe_dump(kubeconfig))
        client.start(identity)
        (source,) = find_clusters(KindClusters(), tmp_path, keep=True).sources
        assert (source.cluster, source.context) == ("shop", "kind-shop")
        heard = queue.Queue[str]()
        followed = SOURCE.watch(KindClusters(), tmp_path, heard.put)
        try:
            client.remove(identity, volumes=True)
            assert heard.get(timeout=60) == "shop"
        finally:
            followed.stop()
        assert find_clusters(KindClusters(), tmp_path, keep=True).removed == ("shop",)


@pytest.fixture(params=[0, USER], ids=["root", "rootless"])
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    """Return a stack of one Service, deployed in a Podman of this user on the host's network."""
    user = request.param
    with project(PREPARE, owner=user) as made, podman(user, made.space) as engine:
        with lent({PODMAN: engine.host}):
            image = make_image(PodmanContainers())
        made.configure(runtime="podman", image=image, pools=[{"name": "p", "addresses": ["127.88.0.0/28"]}])
        made.write("all.yaml", node(), service("web", port(8080, PORT)))
        with served(made.space, f"127.0.0.1@{PORT}"):
            present = Place(made, engine)
            yield present
            assert present.run("destroy", "--yes").code == 0
            assert present.containers() == []


def test_a_service_is_served_by_the_users_own_podman(place: Place) -> None:
    """A second run changes nothing; what is harmed goes on; what a lost state left is found and adopted."""
    at = place.up()
    assert place.answers(at) == [f"hello from {PORT}"]
    before = place.containers()
    place.up("--expect-no-changes")
    place.engine.run("kill", *before)
    assert place.up() == at
    assert (place.answers(at), place.containers()) == ([f"hello from {PORT}"], before)
    (place.project.root / ".state/.pulumi/stacks/local-lb/dev.json").unlink()
    assert [row["sort"] for row in place.run("gc", "--json").json if row["sort"] == "container"] == ["container"]
    assert (place.up(), place.containers()) == (at, before)


def test_proxies_serve_while_podmans_service_is_away(place: Place) -> None:
    """Commands say so in one sentence; with the service back there is nothing to do."""
    at = place.up()
    before = place.containers()
    place.engine.end()
    assert place.answers(at) == [f"hello from {PORT}"]
    for terms in (("up", "--yes"), ("preview",), ("destroy", "--yes")):
        done = place.run(*terms)
        assert done.code == 1
        assert done.err.count("Podman doesn't answer at unix://") == 1, done.err
    place.engine.start()
    assert place.up("--expect-no-changes") == at
    assert (place.answers(at), place.containers()) == ([f"hello from {PORT}"], before)


def test_low_ports_are_those_that_the_user_may_bind(place: Place) -> None:
    """A container of root's has all of them, one of a user's what the user may bind: that is told as for a process."""
    place.project.write("all.yaml", node(), service("web", port(80, PORT)))
    done = place.run("up", "--yes")
    assert done.code == 0, done.err
    (row,) = place.run("status", "--json").json
    if place.engine.user:
        assert row["reason"] == "PortPrivileged"
        assert "host setup" in row["message"]
    else:
        assert requested(place.project.space, f"{row['addresses'][0]}@80") == [f"hello from {PORT}"]


@pytest.mark.parametrize("mapped", [False, True], ids=["addresses", "mapped"])
def test_nodes_that_only_containers_reach_are_served_at_published_ports(place: Place, *, mapped: bool) -> None:
    """On a network of this user's Podman, as kind's Nodes are: this host has no way to it where there is no root.

    At an address of the Service's own, or at a port of 127.0.0.1 that is told: its own, or another one where low ports
    aren't the user's.
    """
    place.engine.run("network", "create", "--subnet", "10.232.7.0/24", "kind")
    config: dict[str, object] = {
        "Image": "",
        "Cmd": ["--config-yaml", json.dumps({"static_resources": {"listeners": [LISTENER]}})],
    }
    fixed = {"kind": {"IPAMConfig": {"IPv4Address": NODE}}}
    with lent({PODMAN: place.engine.host}), closing(PodmanContainers()) as client:
        config |= {"Image": make_image(client), "HostConfig": {"NetworkMode": "kind"}}
        identity = client.create("node", {**config, "NetworkingConfig": {"EndpointsConfig": fixed}})
        client.start(identity)
        pools = [{"name": "p", "addresses": ["127.88.0.0/28"]}]
        clients = {"portMapping": "loopback"} if mapped else {"pools": pools}
        place.project.configure(runtime="podman", network="publish", image=config["Image"], **clients)
        number = 80 if mapped else 8080
        place.project.write("all.yaml", node(address=NODE), service("web", port(number, PORT)))
        at = place.up()
        if mapped:
            assert at == "127.0.0.1"
            number = place.mapped()
            assert (number != 80) is bool(place.engine.user)
        assert requested(place.project.space, f"{at}@{number}") == [f"hello from {PORT}"]
        place.up("--expect-no-changes")
        if place.engine.user:
            assert requested(place.project.space, f"{NODE}@{PORT}") != [f"hello from {PORT}"]
        client.remove(identity, volumes=True)
