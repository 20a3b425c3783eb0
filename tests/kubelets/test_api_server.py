"""A host that reaches the API server of a cluster, and neither Nodes nor pods: a network namespace of the test."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from tests.kubelets.first_objects import first_objects, gateway_kinds, objects_answer
from tests.kubelets.workloads import Workloads, answer, service_port
from tests.support.client_kinds import POD
from tests.support.host import LOCALLB, Project, project
from tests.support.ingress_rights import BINDING, ROLE, SUBJECT
from tests.support.manifests import service
from tests.support.network_spaces import inside
from tests.support.stages import stated
from tests.support.waiting import becomes

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.kubelets,
    pytest.mark.envoy,
    pytest.mark.root(only="can enter a network namespace"),
]
RIGHT = Path(__file__).resolve().parents[2] / "deploy" / "rbac-relay.yaml"
NO_NODE_PORTS = {"allocateLoadBalancerNodePorts": False}


@pytest.fixture
def far(world: Workloads) -> Iterator[Project]:
    """Return a project on such a host."""
    ranges, link = world.cluster.plane.ranges, f"llb{secrets.token_hex(3)}"
    here, there = (f"10.{ranges.byte}.96.{number}" for number in (1, 2))
    with project() as play:
        script = (
            f"ip link add {link} type veth peer name v0 netns {play.space.pid}"
            f" && ip address add {here}/30 dev {link} && ip link set {link} up"
        )
        subprocess.run(["sh", "-ec", script], check=True)
        play.space.shell(
            f"ip address add {there}/30 dev v0 && ip link set v0 up && ip route add {ranges.gateways[0]}/32 via {here}"
        )
        play.configure(sources=[world.plane.source])
        yield play


@pytest.fixture
def administrator(world: Workloads, far: Project) -> Iterator[Project]:
    """Have the stack use the rights of the cluster's administrator, and Gateway API in the cluster."""
    source = {**world.plane.source["kubernetes"], "kubeconfig": f"{world.plane.root}/owner.kubeconfig", "classes": True}
    far.configure(sources=[{"kubernetes": source}])
    with gateway_kinds(world):
        yield far
        far.locallb("destroy", "--yes")  # the class has a finalizer of the stack's


@pytest.fixture
def right(world: Workloads) -> Iterator[None]:
    """Give the stack's user the right of the file."""
    role, binding = yaml.safe_load_all(RIGHT.read_text())
    world.client.create(ROLE.from_dict(role))
    world.client.create(BINDING.from_dict({**binding, "subjects": [SUBJECT]}))
    yield
    world.client.delete(BINDING, "local-lb-relay")
    world.client.delete(ROLE, "local-lb-relay")


@contextmanager
def watched(play: Project) -> Iterator[Path]:
    """Run `watch` there; return its log."""
    log = play.root / "log"
    homes = {"XDG_STATE_HOME": str(play.root / "s"), "HOME": str(play.root), "PYTHONDONTWRITEBYTECODE": "1"}
    command = play.space.enter(*LOCALLB, "-C", str(play.root), "watch", "--plain")
    with log.open("wb") as output:
        watch = subprocess.Popen(command, stdout=output, stderr=output, env={**os.environ, **homes})
    try:
        yield log
    finally:
        watch.terminate()
        watch.wait()


def relay_of(play: Project) -> int:
    """Return the process of the one relay."""
    (relay,) = stated(play.root, "locallb:index:ApiRelay")
    return int(str(relay.outputs["pid"]))


@pytest.mark.parametrize("world", ["nodePorts"], indirect=True)
def test_first_objects_answer_through_the_api_server(world: Workloads, administrator: Project) -> None:
    """A Service, an Ingress and a Gateway on ClusterIP Services, by default; UDP is refused with a sentence."""
    first_objects(world)
    world.service(service("dns", service_port(53, "UDP"), selector={"app": "web"}))
    with watched(administrator) as log:
        at = world.address("web")
        with inside(administrator.space):
            becomes(lambda: {answer(at) for _ in range(20)} == world.pods("web").keys(), log.read_text)
            becomes(lambda: objects_answer(world), log.read_text)
        becomes(lambda: "through the API server only, which forwards no UDP" in log.read_text(), log.read_text)


@pytest.mark.usefixtures("right")
@pytest.mark.parametrize("world", ["nodePorts"], indirect=True)
def test_pods_and_relays_may_end(world: Workloads, far: Project) -> None:
    """With NodePorts and without: clients of a pod that is deleted get another one, and a killed relay is replaced."""
    world.deploy("web", 2)
    world.expose("web")
    world.deploy("lone", 1)
    world.expose("lone", **NO_NODE_PORTS)
    with watched(far) as log:
        at = {name: world.address(name) for name in ("web", "lone")}
        with inside(far.space):
            for name, address in at.items():
                becomes(lambda name=name, address=address: answer(address) in world.pods(name), log.read_text)  # type: ignore[misc]
            assert "none of its Nodes answers this host, so connections go to pods through the API" in log.read_text()
            ended, *_ = world.pods("web")
            world.client.delete(POD, ended, namespace="n")
            becomes(lambda: ended not in {answer(at["web"]) for _ in range(10)}, log.read_text)
            os.kill(killed := relay_of(far), signal.SIGKILL)
            becomes(lambda: answer(at["lone"]) in world.pods("lone"), log.read_text)
            assert answer(at["web"]) in world.pods("web")
        becomes(lambda: relay_of(far) != killed, log.read_text)


@pytest.mark.parametrize("world", ["nodePorts"], indirect=True)
def test_the_right_that_lacks_is_named(world: Workloads, far: Project) -> None:
    world.deploy("web", 1)
    world.expose("web")
    done = far.up()
    assert "none of its Nodes answers this host; with the right to create pods/portforward" in done.out
