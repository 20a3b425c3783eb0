"""The networks of a cluster with kubelets, chosen so that nothing on this host has them: no kind cluster either."""

from __future__ import annotations

import ipaddress
import json
import secrets
import subprocess
from dataclasses import dataclass, replace

FIRST = 2
"""That of a network's first Node; the host has 1."""


@dataclass(frozen=True)
class Ranges:
    """Networks of both families, told apart from other clusters' by one byte."""

    byte: int
    first: int = FIRST
    """The last byte of the first Node's address: two clusters may be on one network, and have the same pods."""

    @property
    def nodes(self) -> tuple[str, str]:
        return f"10.{self.byte}.0.0/24", f"fd00:6c6c:{self.byte:x}::/64"

    @property
    def gateways(self) -> tuple[str, str]:
        return f"10.{self.byte}.0.1", f"fd00:6c6c:{self.byte:x}::1"

    @property
    def host(self) -> tuple[str, str]:
        """What Nodes and pods reach at the host: all that isn't theirs, such as addresses of Services."""
        return f"10.{self.byte}.64.0/24", f"fd00:6c6c:{self.byte:x}:4000::/64"

    @property
    def pods(self) -> tuple[str, str]:
        return f"10.{self.byte}.128.0/17", f"fd00:6c6c:{self.byte:x}:8000::/50"

    def node(self, number: int) -> tuple[str, str]:
        return f"10.{self.byte}.0.{self.first + number}", f"fd00:6c6c:{self.byte:x}::{self.first + number:x}"

    def after(self, nodes: int) -> Ranges:
        """Return those of a cluster beside one that has so many Nodes; its pods are in the same networks."""
        return replace(self, first=self.first + nodes)

    def pods_of(self, number: int) -> tuple[str, str]:
        """Return the networks of a Node's pods."""
        return f"10.{self.byte}.{128 + number}.0/24", f"fd00:6c6c:{self.byte:x}:{0x8000 + number:x}::/64"


def unused() -> Ranges:
    """Choose ranges that no route of this host leads to."""
    claimed = [ipaddress.ip_network(route) for route in _routes()]
    while True:
        byte = 100 + secrets.randbelow(150)
        if not any(ipaddress.ip_network(f"10.{byte}.0.0/16").overlaps(network) for network in claimed):
            return Ranges(byte)


def _routes() -> list[str]:
    command = ["ip", "-json", "-4", "route", "show", "table", "all"]
    listed = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return [str(item["dst"]) for item in listed if item["dst"] != "default"]
