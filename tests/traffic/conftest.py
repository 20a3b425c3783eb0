"""Fixtures of the tests through real traffic: a machine with a cluster of three Nodes, emptied after each test."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.cluster.controlplane import control_plane
from tests.e2e.support import Stage, stage
from tests.traffic.nodes import GATEWAY, POOLS, Host, World
from tests.traffic.spaces import inside

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


def machine_if_root(mode: str = "iptables") -> Iterator[World]:
    """Run a machine for tests; CI is root and must."""
    if os.geteuid() != 0:
        pytest.skip("only root can make Nodes: network namespaces with kube-proxy in them")
    with make_machine(mode) as made:
        yield made


@pytest.fixture(scope="session")
def machine() -> Iterator[World]:
    """Run a machine for all tests, but for modules that have another one."""
    yield from machine_if_root()


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
    return {"sources": [world.plane.source for world in worlds], "pools": [{"name": "lab", "addresses": list(POOLS)}]}
