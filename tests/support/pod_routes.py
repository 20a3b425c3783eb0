"""Nodes with pods behind routes: their objects, and networks of a host that reaches them."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import ip_network
from pathlib import Path
from typing import Any

from tests.support.containers import Network
from tests.support.host import PYTHON, Namespace, background

SPACE = """\
ip link set lo up
ip link add d0 type bridge && ip link set d0 addrgenmode none && ip link set d0 up
ip address add 172.30.0.1/16 dev d0
ip address add fd30::1/64 dev d0 nodad
"""


POD = "10.244.1.5"
SERVICE = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": "web", "namespace": "shop"},
    "spec": {"type": "LoadBalancer", "allocateLoadBalancerNodePorts": False, "ports": [{"port": 8000}]},
}
SLICE = {
    "apiVersion": "discovery.k8s.io/v1",
    "kind": "EndpointSlice",
    "metadata": {"name": "web-1", "namespace": "shop", "labels": {"kubernetes.io/service-name": "web"}},
    "addressType": "IPv4",
    "ports": [{"port": 8080}],
    "endpoints": [{"addresses": [POD]}],
}


NODE, OTHER_NODE = "172.30.0.2", "172.30.0.3"


def node(name: str = "worker", address: str = NODE, *ranges: str) -> dict[str, Any]:
    """Write a Node with its pods' ranges."""
    six = f"fd30::{address.rpartition('.')[2]}"
    addresses = [{"type": "InternalIP", "address": text} for text in (address, six)]
    ranges = ranges or ("10.244.1.0/24", "fd44:1::/64")
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name},
        "spec": {"podCIDR": ranges[0], "podCIDRs": list(ranges)},
        "status": {"addresses": addresses},
    }


SERVER = """
import socket, sys
with socket.create_server((sys.argv[1], int(sys.argv[3]))) as server:
    print("ready", flush=True)
    while True:
        client, _ = server.accept()
        client.sendall(sys.argv[2].encode())
        client.close()
"""
_LINKS = itertools.count()


@contextmanager
def node_with_pod(network: Network, number: int, answer: str, pod: str = POD, port: int = 8080) -> Iterator[str]:
    """Put a Node on a Docker network, whose only pod gives an answer; give the Node's address."""
    address = str(ip_network(f"{network.gateway}/24", strict=False)[number])
    shown = subprocess.run(
        ["ip", "-o", "address", "show", "to", network.gateway], check=True, capture_output=True, text=True
    )
    bridge = shown.stdout.split()[1]
    link = f"n{os.getpid()}-{next(_LINKS)}"  # the kernel removes those of an ended namespace later
    inside = "\n".join(
        (
            "ip link set lo up",
            f"ip link add eth0 type veth peer name {link} netns {os.getpid()}",
            f"ip address add {address}/24 dev eth0 && ip link set eth0 up",
            f"ip address add {pod}/32 dev lo",
            "",
        )
    )
    with tempfile.TemporaryDirectory() as root:
        space = Namespace(Path(root), inside)
        try:
            subprocess.run(["ip", "link", "set", link, "master", bridge, "up"], check=True)
            with background(space, PYTHON, "-c", SERVER, pod, answer, str(port)):
                yield address
        finally:
            space.close()


def stated(address: str) -> str:
    script = "import socket, sys; print(socket.create_connection((sys.argv[1], 8000), 5).recv(99).decode())"
    return subprocess.run(
        [sys.executable, "-c", script, address], check=True, capture_output=True, text=True
    ).stdout.strip()
