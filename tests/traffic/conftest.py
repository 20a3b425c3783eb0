"""Fixtures of the tests through real traffic: a machine with a cluster of three Nodes, emptied after each test."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.support.control_plane import control_plane
from tests.support.network_spaces import inside
from tests.support.real_nodes import GATEWAY, POOLS, Host, World
from tests.support.stages import Stage, stage

ROLES = ("control-plane", "worker", "worker2")


def new_world(stack: ExitStack, host: Host, name: str, roles: tuple[str, ...], mode: str = "iptables") -> World:
    """Start a cluster on the machine; the caller is on it."""
    plane = stack.enter_context(control_plane(name, host.root / name, GATEWAY))
    plane.start_controllers()
    made = World(plane, host, mode)
    stack.callback(made.close)
    for role in roles:
        made.join(role)
    made.wait_for_nodes()
    return made


@contextmanager
def make_machine(mode: str = "iptables") -> Iterator[World]:
    """Run a machine and on it a cluster laid out as kind does it, its kube-proxies in that mode. Only root can."""
    root = Path(tempfile.mkdtemp(prefix="llb-", dir="/tmp"))
    try:
        with ExitStack() as stack:
            host = Host(root / "h")
            stack.callback(host.close)
            with inside(host.space):
                made = new_world(stack, host, "kind", ROLES, mode)
            yield made
            stack.enter_context(inside(host.space))
    finally:
        shutil.rmtree(root)


both_modes = pytest.mark.parametrize("machine", ["iptables", "nftables"], indirect=True, scope="session")
"""On what depends on kube-proxy: by nftables it listens on other addresses, for NodePorts and for checks."""


@pytest.fixture(scope="session", params=["iptables"])
def machine(request: pytest.FixtureRequest) -> Iterator[World]:
    """Run a machine for all tests, with kube-proxies in one mode; CI is root and must."""
    if os.geteuid() != 0:
        pytest.skip("only root can make Nodes: network namespaces with kube-proxy in them")
    if request.param == "nftables" and shutil.which("nft", path="/usr/sbin:/sbin:/usr/bin:/bin") is None:
        pytest.skip("needs nft, of the package nftables")
    with make_machine(request.param) as made:
        yield made


@pytest.fixture
def world(machine: World) -> Iterator[World]:
    """Be on the machine, whose cluster has Nodes and nothing else."""
    with inside(machine.host.space):
        yield machine
        machine.reset()


@pytest.fixture
def play(world: World) -> Iterator[Stage]:
    """Return a project whose only source is the cluster; destroyed before the cluster is emptied."""
    with stage() as made:
        made.configure(**configured(world))
        yield made


def configured(*worlds: World) -> dict[str, object]:
    """Make the settings for these clusters and the addresses that the machine answers for."""
    sources, pools = [world.plane.source for world in worlds], [{"name": "lab", "addresses": list(POOLS)}]
    return {"sources": sources, "pools": pools, "podRoutes": "off"}
