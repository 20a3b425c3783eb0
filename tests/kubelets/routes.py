"""Routes of this host to a cluster's pods."""

from __future__ import annotations

import subprocess

from locallb.model.identities import KEY_PREFIX, Home
from locallb.runtimes.pod_routes import present_routes
from tests.support.docker_command import docker
from tests.support.kubelet_cluster import Cluster
from tests.support.stages import Stage


def to_pods(cluster: Cluster) -> str:
    """List this host's routes to the cluster's pods, whoever made them."""
    families = zip(("-4", "-6"), cluster.plane.ranges.pods, strict=True)
    shown = [("ip", family, "route", "show", "table", "all", "root", pods) for family, pods in families]
    return "".join(subprocess.run(terms, check=True, capture_output=True, text=True).stdout for terms in shown)


def made(play: Stage, container: str = "") -> set[tuple[str, str]]:
    """Return the ways that the stack has made, and that are there."""
    home = Home("local-lb", "dev", str(play.root.resolve()))
    return {(str(route.destination), str(route.gateway)) for route in present_routes(home, container)}


def proxies(play: Stage) -> list[str]:
    """List the containers of the stack's proxies."""
    return docker("ps", "--all", "--quiet", "--no-trunc", "--filter", f"label={KEY_PREFIX}root={play.root}").split()
