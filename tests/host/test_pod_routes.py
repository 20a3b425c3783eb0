"""Routes to pods in this host's table, made by netlink in network namespaces of the test's own: a host and a Node."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from tests.support.host import LOCALLB, PYTHON, Namespace, Project, background, project, requested, served
from tests.support.pod_routes import NODE, OTHER_NODE, SERVICE, SLICE, node
from tests.support.waiting import becomes

pytestmark = [pytest.mark.slow, pytest.mark.envoy]
HOST = "172.30.0.1"
POD, POD6 = "10.244.1.5", "fd44:1::5"
INSIDE = f"""\
ip link set lo up
ip link add v1 type veth peer name v0 netns {{pid}}
ip address add {NODE}/24 dev v1 && ip address add fd30::2/64 dev v1 nodad && ip link set v1 up
ip address add {POD}/32 dev lo && ip -6 address add {POD6}/128 dev lo
"""
OUTSIDE = f"""\
ip address add {HOST}/24 dev v0 && ip address add fd30::1/64 dev v0 nodad && ip link set v0 up
"""
OURS = ("ip -json route show proto 78", "ip -json -6 route show proto 78")


@contextmanager
def pods_beside(
    serve: Callable[[Namespace], AbstractContextManager[None]] = lambda inside: served(inside, f"{POD}@8080"),
) -> Iterator[Project]:
    """Return a project on a host beside a Node that has the pod, which serves by `serve`."""
    with project() as made, tempfile.TemporaryDirectory() as root:
        inside = Namespace(Path(root), INSIDE.replace("{pid}", str(made.space.pid)), sibling=made.space)
        try:
            made.space.shell(OUTSIDE)
            made.write("web.yaml", SERVICE, SLICE)
            made.write("nodes.yaml", node())
            made.configure(podRoutes="host")
            with serve(inside):
                yield made
        finally:
            inside.close()


@pytest.fixture
def play() -> Iterator[Project]:
    with pods_beside() as made:
        yield made


def ours(play: Project) -> set[str]:
    """Return the routes of our protocol, as the kernel has them."""
    listed = [route for command in OURS for route in json.loads(play.space.shell(command) or "[]")]
    return {f"{item['dst']} via {item['gateway']}" for item in listed}


BOTH = {f"10.244.1.0/24 via {NODE}", "fd44:1::/64 via fd30::2"}


def answer(play: Project) -> list[str]:
    row = play.status()["web"]
    return requested(play.space, f"{row['addresses'][0]}@8000")


def test_up_creates_pod_routes_and_destroy_removes_them(play: Project) -> None:
    """Also without a nodePort; a second one has nothing to do, and destroy leaves nothing."""
    preview = play.locallb("preview")
    assert "c/pod-routes" in preview.out
    assert ours(play) == set()
    play.up()
    assert ours(play) == BOTH
    assert answer(play) == ["hello from 8080"]
    retry = play.locallb("up", "--yes", "--json").json
    assert not [step for step in retry.get("steps", []) if step["op"] not in {"same", "refresh"}]
    play.locallb("destroy", "--yes")
    assert ours(play) == set()


def test_off_is_the_default_and_takes_them_away(play: Project) -> None:
    """Nothing is routed unasked."""
    play.up()
    play.configure()
    play.up()
    assert ours(play) == set()
    assert play.status()["web"]["reason"] == "Unreachable"


def test_removed_pod_route_is_restored_by_up(play: Project) -> None:
    """By the next `up`; what is there needs no repair."""
    play.up()
    play.space.shell("ip route del 10.244.1.0/24")
    preview = play.locallb("preview")
    assert "pod-routes" in preview.out
    play.up()
    assert ours(play) == BOTH


@pytest.mark.parametrize(
    ("existing", "terms"),
    [
        ("ip route add 10.244.0.0/16 via 172.30.0.9", "10.244.0.0/16 is the route to 10.244.0.0/16 via 172.30.0.9"),
        ("ip route add 10.244.1.128/25 via 172.30.0.9", "10.244.1.128/25"),
        ("ip route add 10.244.1.0/24 via 172.30.0.9", "10.244.1.0/24 is the route"),
        ("ip link add tun0 type bridge; ip link set tun0 up; ip route add 10.0.0.0/8 dev tun0", "VPN on tun0"),
        (
            "ip link add wg0 up type bridge; ip route add default dev wg0 table 9; ip rule add table 9",
            "0.0.0.0/0 is led elsewhere: the VPN on wg0 (ip rule 32765: table 9)",
        ),
    ],
)
def test_a_route_of_another_owner_is_never_touched(play: Project, existing: str, terms: str) -> None:
    """It is told which one, of which cluster, and what to do; the other family is routed all the same."""
    play.space.shell(existing)
    before = play.space.shell("ip -4 route show table all")
    done = play.up()
    reported = done.out + done.err
    assert terms in reported
    assert "c: the route 10.244.1.0/24" in reported
    assert "local-lb:podRoutes container" in reported
    assert play.space.shell("ip -4 route show table all") == before
    assert ours(play) == {"fd44:1::/64 via fd30::2"}
    play.locallb("destroy", "--yes")
    assert play.space.shell("ip -4 route show table all") == before


def test_equal_foreign_route_does_not_conflict(play: Project) -> None:
    """Both are there, and theirs stays when ours goes."""
    play.space.shell(f"ip route add 10.244.1.0/24 via {NODE}")
    before = play.space.shell("ip route show")
    play.up()
    assert ours(play) == BOTH
    play.locallb("destroy", "--yes")
    assert play.space.shell("ip route show") == before


def test_two_clusters_with_the_same_pods(play: Project) -> None:
    """The first one keeps them, whatever the other one is called."""
    play.up()
    (play.root / "other").mkdir()
    (play.root / "other" / "nodes.json").write_text(json.dumps(node("worker", OTHER_NODE)))
    sources = [{"manifests": "manifests", "name": "c"}, {"manifests": "other", "name": "a"}]
    play.configure(podRoutes="host", sources=sources)
    done = play.up()
    assert "a: the route" in done.out + done.err
    assert "cluster c has pods in 10.244.1.0/24 as well" in done.out + done.err
    assert ours(play) == BOTH
    assert answer(play) == ["hello from 8080"]


def test_gc_finds_what_a_lost_state_left(play: Project) -> None:
    """And nothing that isn't of this stack."""
    play.up()
    play.space.shell("ip route add 10.99.0.0/16 via 172.30.0.9 proto 78 metric 99")
    for path in (play.root / ".state").glob(".pulumi/stacks/local-lb/*"):
        path.unlink()
    listed = [leftover for leftover in play.locallb("gc", "--json").json if leftover["sort"] == "route"]
    assert {item["what"] for item in listed} == BOTH
    assert all(item["ours"] for item in listed)
    play.locallb("gc", "--yes")
    assert ours(play) == {"10.99.0.0/16 via 172.30.0.9"}


def test_without_rights_and_docker_it_is_said(play: Project) -> None:
    """Nothing else is kept from being served."""
    bare = ("setpriv", "--bounding-set=-net_admin", "--inh-caps=-net_admin", *LOCALLB, "-C", str(play.root))
    homes = (f"XDG_STATE_HOME={play.root / 's'}", f"HOME={play.root}", "DOCKER_HOST=unix:///nowhere")
    done = play.space.run("env", *homes, *bare, "up", "--yes")
    assert done.code == 0, done.out + done.err
    assert "may change no routes" in done.out + done.err
    assert ours(play) == set()


@contextmanager
def watching(play: Project) -> Iterator[None]:
    home = {"XDG_STATE_HOME": str(play.root / "s"), "HOME": str(play.root)}
    command = play.space.enter(*LOCALLB, "-C", str(play.root), "watch")
    with (play.root / "watch.log").open("w") as log:
        watch = subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, **home})
    try:
        yield
    finally:
        watch.terminate()
        watch.wait(60)


def test_routes_follow_nodes_and_come_back(play: Project) -> None:
    """While the loop runs."""
    with watching(play):
        becomes(lambda: ours(play) == BOTH)
        play.write("nodes.yaml", node(), node("second", OTHER_NODE, "10.244.2.0/24"))
        becomes(lambda: ours(play) == {*BOTH, f"10.244.2.0/24 via {OTHER_NODE}"})
        play.space.shell("ip route del 10.244.2.0/24; ip route del 10.244.1.0/24")
        becomes(lambda: ours(play) == {*BOTH, f"10.244.2.0/24 via {OTHER_NODE}"})
        play.write("nodes.yaml", node())
        becomes(lambda: ours(play) == BOTH)
        assert answer(play) == ["hello from 8080"]
        play.write("nodes.yaml", node("worker", NODE, "10.244.7.0/24"))
        becomes(lambda: ours(play) == {f"10.244.7.0/24 via {NODE}"})


@pytest.mark.parametrize("ending", ["destroy", "gc"])
def test_a_kill_leaves_no_route_behind(play: Project, ending: str) -> None:
    """Killed as soon as its first route is there, whether its state knows that or not."""
    home = {"XDG_STATE_HOME": str(play.root / "s"), "HOME": str(play.root)}
    command = play.space.enter(*LOCALLB, "-C", str(play.root), "up", "--yes")
    run = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ, **home})
    becomes(lambda: ours(play) or run.poll() is not None)
    run.kill()
    run.wait()
    assert ours(play)
    if ending == "destroy":
        play.locallb("destroy", "--yes")
    play.locallb("gc", "--yes")
    if ending == "gc":
        play.up()
        play.locallb("destroy", "--yes")
    assert ours(play) == set()


TALKER = """
import socket, sys, time
address, port = sys.argv[1].rsplit("@", 1)
talker = socket.create_connection((address, int(port)), timeout=1.5)
answer = b"?"
while answer:
    talker.sendall(b"?")
    answer = talker.recv(1)
    print("talking", flush=True)
    time.sleep(0.05)
"""
ECHO = """
import socket, sys
address, port = sys.argv[1].rsplit("@", 1)
server = socket.create_server((address, int(port)))
print("ready", flush=True)
while True:
    peer, _ = server.accept()
    while data := peer.recv(1):
        peer.sendall(data)
"""


def test_pod_route_stays_while_its_proxy_drains() -> None:
    """On destroy: a connection gets a moment to end, and its route stays for just as long."""
    with pods_beside(lambda inside: background(inside, PYTHON, "-c", ECHO, f"{POD}@8080")) as play:
        play.up()
        place = f"{play.status()['web']['addresses'][0]}@8000"
        terms = play.space.enter(PYTHON, "-c", TALKER, place)
        talker = subprocess.Popen(terms, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert talker.stdout
        assert talker.stdout.readline() == "talking\n"
        assert play.locallb("destroy", "--yes").code == 0
        _, complaint = talker.communicate()
        assert not complaint, "a pod that can't be reached any more doesn't answer in time"
        assert ours(play) == set()
