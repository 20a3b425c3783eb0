"""Nodes that are pods of another cluster, and the sources that find them."""

from __future__ import annotations

from pathlib import Path

from locallb.config.parsing import parse_settings
from locallb.config.settings import Settings
from locallb.model.identities import Home
from locallb.sources.found import find_sources
from locallb.sources.source import SourceRead
from tests.support.seed_api import NAMESPACES, PODS, SeedApi

A, B = "shoot--local--a", "shoot--local--b"
WAYS = "10.0.7.2/32 via 172.18.0.3", "fd00:10:1:100::2/128 via fd00:10::3"
BOTH = (["10.0.7.2", "fd00:10:1:100::2"], ["172.18.0.3", "fd00:10::3"])


def put(api: SeedApi, shoot: str, pod_ips: list[str], host_ips: list[str], name: str = "m1", **labels: str) -> None:
    """Make a Node, in the namespace of its shoot."""
    api.put_machine(shoot, name, pod_ips, host_ips)
    pod = api.objects[PODS].pop()
    pod["metadata"]["labels"] |= labels
    api.objects[f"{NAMESPACES}/infra-{shoot}"] = {"metadata": {"name": f"infra-{shoot}", "resourceVersion": "1"}}
    api.objects.setdefault(pods(shoot), []).append(pod)


def pods(shoot: str) -> str:
    """Return the path of the pods beside a shoot's Nodes."""
    return f"{NAMESPACES}/infra-{shoot}/pods"


def settings(*shoots: str, **nodes: str) -> Settings:
    """Read the configuration of a control plane, or of several."""
    kubernetes = [
        {"name": name, "kubeconfig": "shoot", "nodes": {"kubeconfig": "cloudprovider", **nodes}}
        for name in shoots or (A,)
    ]
    return parse_settings({"sources": [{"kubernetes": each} for each in kubernetes]})


def find(root: Path, *shoots: str, keep: bool = True, **nodes: str) -> tuple[dict[str, tuple[str, ...]], list[str]]:
    """Return the ways to each cluster's Nodes, as sources and finders have them, and the complaints."""
    sources, stated = find_sources(Home("p", "dev", str(root)), settings(*shoots, **nodes), keep=keep)
    found = {str(source.cluster): tuple(map(str, source.node_routes or ())) for source in sources}
    assert found == {
        name: tuple(map(str, pod_paths)) for read in stated for name, pod_paths in read.node_routes.items()
    }
    return found, [sentence for read in stated for sentence in complaints(read)]


def complaints(read: SourceRead) -> tuple[str, ...]:
    assert read.reading.parsed.notices == ()
    return read.reading.stale
