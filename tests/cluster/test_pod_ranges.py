"""Ranges of pods as Calico keeps them, on a real API: read with the rights that deploy/ has for it, and followed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
import yaml
from lightkube import Client
from lightkube.codecs import load_all_yaml
from lightkube.generic_resource import create_global_resource

from locallb.sources.entries import KubernetesSource
from locallb.sources.kubernetes.followed_cluster import FollowedCluster
from locallb.sources.kubernetes.reading import read_kubernetes
from tests.support.control_plane import ControlPlane, Objects
from tests.support.ingress_rights import BINDING, ROLE, SUBJECT
from tests.support.pod_ranges import CORE, block, ranges_of
from tests.support.waiting import becomes

pytestmark = pytest.mark.cluster

MANIFEST = Path(__file__).resolve().parents[2] / "deploy" / "rbac-pod-ranges.yaml"
BLOCK = create_global_resource("crd.projectcalico.org", "v1", "BlockAffinity", "blockaffinities")
DEFINITION = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: blockaffinities.crd.projectcalico.org}
spec:
  group: crd.projectcalico.org
  scope: Cluster
  names: {kind: BlockAffinity, plural: blockaffinities, singular: blockaffinity, listKind: BlockAffinityList}
  versions:
    - name: v1
      served: true
      storage: true
      schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
"""


@pytest.fixture
def owner(plane: ControlPlane, cluster: Objects) -> Iterator[Client]:
    """Have Calico's kind in the cluster, and local-lb's rights."""
    cluster.node("a")
    role, binding = yaml.safe_load_all(MANIFEST.read_text())
    (definition,) = load_all_yaml(DEFINITION)
    with plane.client() as client:
        client.create(ROLE.from_dict(role))
        client.create(BINDING.from_dict({**binding, "subjects": [SUBJECT]}))
        client.create(definition)
        becomes(lambda: is_created(client, "10.9.0.0/26"), "the kind can be written")
        yield client
        client.delete(type(definition), "blockaffinities.crd.projectcalico.org")
        client.delete(BINDING, binding["metadata"]["name"])
        client.delete(ROLE, role["metadata"]["name"])


def is_created(client: Client, cidr: str) -> bool:
    """Create a block; return whether the kind is there by now."""
    document = block(cidr)
    del document["metadata"]["resourceVersion"]
    try:
        client.create(BLOCK.from_dict(document))
    except httpx2.HTTPStatusError as error:  # a path that isn't served is answered in plain text
        if error.response.status_code != httpx2.codes.NOT_FOUND:
            raise
        return False
    return True


def test_blocks_are_read_and_followed(owner: Client, plane: ControlPlane, tmp_path: Path) -> None:
    """By who may do no more than the manifests say; no request is refused."""
    plane.audit_log.write_text("")
    kubernetes = plane.source["kubernetes"]
    source = KubernetesSource(
        kubernetes["name"], kubernetes["kubeconfig"], reads_pod_ranges=True, loopback_backends=True
    )
    read = read_kubernetes(source, tmp_path, tmp_path / "readings")
    assert ranges_of(read.reading.parsed) == ["10.9.0.0/26"]
    followed = FollowedCluster(source.cluster, read.access, lambda: None, reads_ranges=True, loopback=True)
    try:
        becomes(lambda: followed.ready() and ranges_of(followed.parsed()) == ["10.9.0.0/26"], "the block is known")
        assert is_created(owner, "10.9.0.64/26")
        becomes(lambda: len(ranges_of(followed.parsed())) > 1, "another block is heard of")
        owner.delete(BLOCK, "a-10.9.0.0-26")
        becomes(lambda: ranges_of(followed.parsed()) == ["10.9.0.64/26"], "a block that went is forgotten")
        assert followed.parsed().notices == ()
    finally:
        followed.stop()
    answered = [json.loads(line)["responseStatus"]["code"] for line in plane.audit_log.read_text().splitlines()]
    assert answered.count(200) > len(CORE)
    assert 403 not in answered
