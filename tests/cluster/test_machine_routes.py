"""Shoots served from their control planes: their Nodes are pods of another real API, by the rights of deploy/ alone."""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from lightkube import Client
from lightkube.generic_resource import create_namespaced_resource
from lightkube.types import PatchType

from locallb.model.identities import KEY_PREFIX, Home
from locallb.runtimes.docker.engine_api import Containers
from locallb.runtimes.planners import PROXY_LABEL
from locallb.runtimes.pod_routes import present_routes
from tests.support.client_kinds import NAMESPACE, POD
from tests.support.cluster_build import CHECKOUT
from tests.support.container_engines import network
from tests.support.containers import Network, own_pool
from tests.support.control_plane import ControlPlane, Objects, control_plane
from tests.support.docker_image import image
from tests.support.ingress_rights import IN_NAMESPACE, SUBJECT
from tests.support.manifests import port, service
from tests.support.pod_routes import node_with_pod, stated
from tests.support.stages import Stage, stage
from tests.support.waiting import TIMEOUT
from tests.support.watching import Watch, eventually

__all__ = ["image", "network"]
pytestmark = [
    pytest.mark.cluster,
    pytest.mark.docker,
    pytest.mark.envoy,
    pytest.mark.root(only="can put a Node on a Docker network"),
]
ROLE = create_namespaced_resource("rbac.authorization.k8s.io", "v1", "Role", "roles")
MANIFEST = CHECKOUT / "deploy" / "rbac-machines.yaml"
WRITTEN = "infra-shoot--local--shop"
MACHINE = "10.0.7.2"
"""Where the only Node of every shoot is: all have one range for Nodes."""
IN_POD = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc", str(Path(sys.executable).parent / "locallb"))
"""As in a pod of a control plane, no process of Docker's is seen."""


@dataclass
class Shoot:
    """One shoot: its API, and what the runtime cluster has of it."""

    objects: Objects
    runtime: Client

    @property
    def name(self) -> str:
        return self.objects.plane.name

    @property
    def service(self) -> str:
        """The name of its only Service, which no other shoot's has."""
        return f"web-{self.name[-1]}"

    @property
    def infra(self) -> str:
        return f"infra-{self.name}"

    def allow(self) -> None:
        """Give local-lb the rights of deploy/ in that namespace."""
        role, binding = yaml.safe_load_all(MANIFEST.read_text().replace(WRITTEN, self.infra))
        self.runtime.create(ROLE.from_dict(role))
        self.runtime.create(IN_NAMESPACE.from_dict({**binding, "subjects": [SUBJECT]}))

    def forbid(self) -> None:
        for kind in (IN_NAMESPACE, ROLE):
            self.runtime.delete(kind, "local-lb-machines", namespace=self.infra)

    def start_machine(self, gateway: str) -> None:
        """Make its Node, as a pod on a Node of the runtime cluster."""
        labels = {"app": "machine", "machine": "m1", "machine-provider": "local"}
        metadata = {"name": "machine-m1", "namespace": self.infra, "labels": labels}
        spec = {"containers": [{"name": "node", "image": "x"}]}
        self.runtime.create(POD.from_dict({"metadata": metadata, "spec": spec}))
        stated = {"podIP": MACHINE, "podIPs": [{"ip": MACHINE}], "hostIP": gateway, "hostIPs": [{"ip": gateway}]}
        status = {"status": {"phase": "Running", **stated}}
        self.runtime.patch(POD.Status, "machine-m1", status, namespace=self.infra, patch_type=PatchType.MERGE)

    def end_machine(self) -> None:
        self.runtime.delete(POD, "machine-m1", namespace=self.infra, grace_period=0)

    def address(self) -> str:
        """Return the one address in its Service's status."""
        (entry,) = (self.objects.read(self.service) or {})["status"]["loadBalancer"]["ingress"]
        return str(entry["ip"])


@contextmanager
def shoot(name: str, runtime: Client, root: Path) -> Iterator[Shoot]:
    """Run a shoot's API, with a Service."""
    with control_plane(name, root / name) as plane, plane.client() as client:
        runtime.create(NAMESPACE.from_dict({"metadata": {"name": f"infra-{name}"}}))
        made = Shoot(Objects(plane, client), runtime)
        made.allow()
        made.objects.node("machine-m1", MACHINE)
        made.objects.service(service(made.service, port(8000, 0)))
        yield made
        made.forbid()


def cloudprovider(plane: ControlPlane) -> dict[str, Any]:
    """Write the kubeconfig of the runtime cluster, with everything inside."""
    document: dict[str, Any] = yaml.safe_load(plane.kubeconfig.read_text())
    cluster = document["clusters"][0]["cluster"]
    authority = Path(cluster.pop("certificate-authority")).read_bytes()
    cluster["certificate-authority-data"] = base64.b64encode(authority).decode()
    return document


def source(shoot: Shoot, kubeconfig: Path) -> dict[str, Any]:
    kubernetes = shoot.objects.plane.source["kubernetes"]
    return {"kubernetes": {**kubernetes, "nodes": {"kubeconfig": str(kubeconfig)}}}


def routes(play: Stage) -> dict[str, set[str]]:
    """Return the routes in the network of each cluster's proxy."""
    home, engine = Home("local-lb", "dev", str(play.root.resolve())), Containers()
    mine = {f"{KEY_PREFIX}{key}": text for key, text in home._asdict().items()}
    proxies = [one for one in engine.labelled(PROXY_LABEL) if mine.items() <= one["Labels"].items()]
    return {one["Labels"][f"{KEY_PREFIX}cluster"]: set(map(str, present_routes(home, one["Id"]))) for one in proxies}


@contextmanager
def watching_in_a_pod(play: Stage) -> Iterator[Watch]:
    """Watch the stack with a /proc of its own."""
    watch = Watch(play, "--plain", program=IN_POD)
    try:
        yield watch
    finally:
        number = watch.process.pid
        for child in Path(f"/proc/{number}/task/{number}/children").read_text().split():  # `unshare` passes nothing on
            os.kill(int(child), signal.SIGTERM)
        watch.process.wait(TIMEOUT)


def test_each_shoot_is_served_by_its_own_node_though_all_have_one_address(
    plane: ControlPlane, image: str, network: Network, tmp_path: Path
) -> None:
    """Routes go with a pod and come with it; while its API refuses they stay; it is asked for nothing else."""
    kubeconfig = tmp_path / "cloudprovider"
    kubeconfig.write_text(yaml.safe_dump(cloudprovider(plane)))
    with ExitStack() as stack:
        runtime = stack.enter_context(plane.client())
        one, other = (stack.enter_context(shoot(f"shoot--local--{x}", runtime, tmp_path)) for x in ("a", "b"))
        pod_paths = {}
        for number, each in enumerate((one, other), 250):
            node_port = each.objects.ports(each.service)[0]["nodePort"]
            gateway = stack.enter_context(node_with_pod(network, number, each.name, MACHINE, node_port))
            each.start_machine(gateway)
            pod_paths[each.name] = {f"{MACHINE}/32 via {gateway}"}
        plane.audit_log.write_text("")
        play = stack.enter_context(stage())
        play.configure(
            sources=[source(each, kubeconfig) for each in (one, other)],
            runtime="docker",
            image=image,
            network={"publish": network.name},
            podRoutes="container",
            pools=own_pool(),
        )
        with watching_in_a_pod(play) as watch:
            eventually(lambda: [served(each) for each in (one, other)] == [one.name, other.name], watch)
            assert routes(play) == pod_paths
            assert _requested(plane) == {("pods", one.infra, 200), ("pods", other.infra, 200)}
            _rewrite(kubeconfig, {"exec": _command(tmp_path / "ran")})
            eventually(lambda: watch.reported().count("and nothing else; so the 1 ways") == 2, watch)
            _rewrite(kubeconfig, {"token": plane.tokens["local-lb"]})
            one.forbid()
            eventually(lambda: ("pods", one.infra, 403) in _requested(plane), watch)
            eventually(
                lambda: f"source {one.name}: which pods are its Nodes can't be found out" in watch.reported(), watch
            )
            assert routes(play) == pod_paths
            one.allow()
            one.end_machine()
            eventually(lambda: routes(play)[one.name] == set(), watch)
            assert routes(play)[other.name] == pod_paths[other.name]
            one.start_machine(next(iter(pod_paths[one.name])).rpartition(" ")[2])
            eventually(lambda: routes(play) == pod_paths, watch)
            assert [stated(each.address()) for each in (one, other)] == [one.name, other.name]
        assert not (tmp_path / "ran").exists()
        assert play.run("destroy", "--yes").code == 0
        assert routes(play) == {}


def served(shoot: Shoot) -> str:
    """Return who answers at its Service's address; nobody before there is one, and before there are routes."""
    with suppress(ValueError, KeyError, subprocess.CalledProcessError):
        return stated(shoot.address())
    return ""


def _command(touched: Path) -> dict[str, Any]:
    api = "client.authentication.k8s.io/v1beta1"
    return {"apiVersion": api, "command": "touch", "args": [str(touched)], "interactiveMode": "Never"}


def _rewrite(kubeconfig: Path, user: dict[str, Any]) -> None:
    """Write another user into the file, in place."""
    document = yaml.safe_load(kubeconfig.read_text())
    document["users"][0]["user"] = user
    kubeconfig.write_text(yaml.safe_dump(document))


def _requested(plane: ControlPlane) -> set[tuple[str, str, int]]:
    """Return what was asked of the runtime cluster."""
    lines = (json.loads(line) for line in plane.audit_log.read_text().splitlines())
    about = ((line.get("objectRef") or {}, line["responseStatus"]["code"]) for line in lines)
    return {(str(it.get("resource")), str(it.get("namespace")), int(code)) for it, code in about}
