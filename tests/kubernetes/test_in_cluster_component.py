"""The component for local-lb in a cluster declares what `kubectl apply -k deploy` applies."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

CHECKOUT = Path(__file__).resolve().parents[2]
MANIFESTS = ("rbac.yaml", "rbac-leader-election.yaml", "in-cluster.yaml")
PROGRAM = """
import json, sys
import pulumi

class Mocks(pulumi.runtime.Mocks):
    def new_resource(self, args):
        made.append(args.inputs)
        return args.name, args.inputs

    def call(self, args):
        return {}

made = []
pulumi.runtime.set_mocks(Mocks())
from locallb.components.in_cluster import InCluster

@pulumi.runtime.test
def declare():
    return InCluster("local-lb", **json.loads(sys.argv[1])).deployment.metadata

declare()
print(json.dumps(made))
"""


def by_name(objects: Iterable[dict[str, Any]]) -> dict[tuple[str, str], dict[str, Any]]:
    """Return objects by their kind and name."""
    return {(one["kind"], one["metadata"]["name"]): one for one in objects}


def declared(**arguments: object) -> dict[tuple[str, str], dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(arguments)],
        check=True, capture_output=True, text=True, cwd=CHECKOUT, timeout=120,
    )  # fmt: skip
    return by_name(made for made in json.loads(done.stdout) if "kind" in made)


def applied(image: str, namespace: str) -> dict[tuple[str, str], dict[str, Any]]:
    """Return what kustomize makes of the manifests: another image, and one namespace."""
    text = "---\n".join((CHECKOUT / "deploy" / name).read_text() for name in MANIFESTS)
    text = text.replace("image: local-lb\n", f"image: {image}\n").replace(": kube-system", f": {namespace}")
    return by_name(yaml.safe_load_all(text))


def test_in_cluster_component_declares_the_manifests_objects() -> None:
    """Each object, with the image as kustomize names it."""
    assert declared() == applied("local-lb:latest", "kube-system")


def test_in_cluster_component_takes_namespace_image_stack_and_rights() -> None:
    """A namespace, an image, a stack, further rights."""
    stack = "config: {local-lb:sources: [{kubernetes: {name: shoot, kubeconfig: /kubeconfig/kubeconfig}}]}\n"
    made = declared(
        namespace="shoot--a", image="registry.example/lb:1", configuration=stack, rights={"gateways": ["shop"]}
    )
    expected = applied("registry.example/lb:1", "shoot--a")
    expected[("ConfigMap", "local-lb")]["data"] = {"Pulumi.dev.yaml": stack}
    assert {key: made[key] for key in expected} == expected
    further = {name for kind, name in made.keys() - expected.keys() if kind == "ClusterRole"}
    assert further == {"local-lb-gateways", "local-lb-secrets", "local-lb-authorities"}
