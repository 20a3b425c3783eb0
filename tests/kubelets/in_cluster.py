"""local-lb as a Deployment of the cluster that it serves: `kubectl apply -k` of deploy/, in a directory of the test's.

Not here: what the image is made of (`tests.support.tool_image`), the Nodes.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from tests.support.client_kinds import POD
from tests.support.cluster_build import CHECKOUT, kubernetes
from tests.support.containers import docker, own_pool
from tests.support.kubelet_cluster import Cluster

SOCKET = Path("/var/run/docker.sock")
DIRECTORY = "/var/lib/locallb"
"""What the manifests use of the machine, which other stacks of this one may use just now."""
STACK = "Pulumi.dev.yaml"
_MINUTES = 5
_SPEC = "/spec/template/spec"


@dataclass(frozen=True)
class Replicas:
    """The pods of local-lb in a cluster."""

    cluster: Cluster
    root: Path
    """What they have in place of the machine's directory, at one path in pods, Nodes and on this host."""

    def load(self, image: str, directory: Path) -> None:
        """Put the image into every Node, as `kind load` does."""
        archive = directory / "image.tar"
        subprocess.run(["docker", "save", "--output", str(archive), image], check=True, timeout=60 * _MINUTES)
        for name in self.cluster.nodes:
            terms = ["docker", "exec", "--interactive", name, "ctr", "--namespace", "k8s.io", "images", "import", "-"]
            with archive.open("rb") as packed:
                subprocess.run(terms, stdin=packed, check=True, capture_output=True, timeout=60 * _MINUTES)
        archive.unlink()

    def apply(self, image: str, envoy: str, directory: Path) -> None:
        """Apply what deploy/ has; wait until its pods run."""
        shutil.copytree(CHECKOUT / "deploy", directory / "deploy")
        overlay = directory / "overlay"
        overlay.mkdir()
        (overlay / "kustomization.yaml").write_text(yaml.safe_dump(self._overlay(image, envoy)))
        self.kubectl("apply", "-k", str(overlay))
        self.kubectl("rollout", "status", "deployment/local-lb", f"--timeout={_MINUTES}m")

    def kubectl(self, *terms: str) -> str:
        """Run kubectl as the cluster's owner, in the namespace of the pods."""
        owner = f"--kubeconfig={self.cluster.plane.root}/owner.kubeconfig"
        command = [str(kubernetes("kubectl")), owner, "--namespace=kube-system", *terms]
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60 * _MINUTES)
        assert done.returncode == 0, f"kubectl {terms[0]}: {done.stderr}"
        return done.stdout

    def pods(self) -> Mapping[str, str]:
        """Return the pods that run, with the id of each one's container."""
        listed = json.loads(self.kubectl("get", "pods", "--selector=app.kubernetes.io/name=local-lb", "-o", "json"))
        states = {pod["metadata"]["name"]: pod["status"].get("containerStatuses", ()) for pod in listed["items"]}
        return {
            name: state["containerID"].removeprefix("containerd://")
            for name, (state,) in states.items()
            if "running" in state["state"]
        }

    def status(self, pod: str) -> str:
        """Return what `locallb status` prints in one of them."""
        return self.kubectl("exec", pod, "--", "python3", "-m", "locallb", "status")

    def kill(self, pod: str) -> None:
        """Kill what runs in a pod, as the kernel does for memory: without a word."""
        with self.cluster.plane.client() as client:
            node = str(client.get(POD, pod, namespace="kube-system")["spec"]["nodeName"])
        terms = ("ctr", "--namespace", "k8s.io", "tasks", "kill", "--signal", "SIGKILL")
        self.cluster.nodes[node].run(*terms, self.pods()[pod])

    def log(self) -> str:
        return self.kubectl("logs", "--selector=app.kubernetes.io/name=local-lb", "--tail=20", "--prefix")

    def remove_proxies(self) -> None:
        """Remove the proxies, which outlive the cluster."""
        label = f"label=local-lb.dev/root={self.root}/local-lb"
        if remaining := docker("ps", "--all", "--quiet", "--filter", label).split():
            docker("rm", "--force", *remaining)

    def _overlay(self, image: str, envoy: str) -> Mapping[str, object]:
        """Change what the test can't share with this machine's other users: the directory, addresses, images."""
        documents = yaml.safe_load_all((CHECKOUT / "deploy/in-cluster.yaml").read_text())
        (reported,) = (document["data"][STACK] for document in documents if document["kind"] == "ConfigMap")
        stack = yaml.safe_load(reported)
        stack["config"] |= {"local-lb:pools": own_pool(), "local-lb:image": envoy}
        places = {"HOME": "", "XDG_STATE_HOME": "", "XDG_DATA_HOME": "", "LOCALLB_LEDGER": "/ledger"}
        variables = [{"name": name, "value": f"{self.root}{below}"} for name, below in places.items()]
        root = str(self.root)
        changes = [
            {"op": "add", "path": f"{_SPEC}/initContainers/0/env", "value": variables},
            *({"op": "add", "path": f"{_SPEC}/containers/0/env/-", "value": variable} for variable in variables),
            {"op": "replace", "path": f"{_SPEC}/initContainers/0/volumeMounts/1/mountPath", "value": root},
            {"op": "replace", "path": f"{_SPEC}/containers/0/volumeMounts/1/mountPath", "value": root},
            {"op": "test", "path": f"{_SPEC}/volumes/2/hostPath/path", "value": DIRECTORY},
            {"op": "replace", "path": f"{_SPEC}/volumes/2/hostPath/path", "value": root},
        ]
        configured = [{"op": "replace", "path": f"/data/{STACK}", "value": yaml.safe_dump(stack)}]
        return {
            "resources": ["../deploy"],
            "images": [{"name": "local-lb", "newName": image, "newTag": "latest"}],
            "patches": [
                {"target": {"kind": "Deployment"}, "patch": yaml.safe_dump(changes)},
                {"target": {"kind": "ConfigMap"}, "patch": yaml.safe_dump(configured)},
            ],
        }
