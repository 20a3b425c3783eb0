"""Pods that are reached through the API server of their cluster, by a relay on this host. Pure.

A relay listens on a socket for each port of a pod that a Service has; Envoy connects to it as to a backend. Names of
clusters never reach a path: sockets are named by digests.
"""

from __future__ import annotations

import hashlib
from typing import NewType

from msgspec import Struct

from locallb.model.identities import ClusterName, Home

RelayId = NewType("RelayId", str)
"""Twelve hex digits: the name of a relay's directory."""
VERSION = "2"
"""Of a relay's program: another one takes the place of what runs."""
RIGHTS = "deploy/rbac-relay.yaml"
"""The file with the right to connect to pods."""
DIRECTORY = "relays"
"""Beside that of the proxies."""


def relay_id(home: Home, cluster: ClusterName) -> RelayId:
    """Return the id of the relay that a stack has for a cluster."""
    return RelayId(_digest("relay", *home, cluster)[:12])


class ForwardingFacts(Struct, frozen=True):
    """What is known of a running cluster, to choose whether its pods are reached through its API server."""

    nodes_answer: bool = True
    """Whether this host reaches any Node of it, or it has none."""
    requested: bool = False
    """Whether the rights below are known: they are asked for where they may matter."""
    everywhere: bool = False
    """Whether this user may connect to pods of all namespaces."""
    namespaces: frozenset[str] = frozenset()
    """Otherwise those to whose pods the user may connect."""


class RelayWay(Struct, frozen=True):
    """The relay of a cluster, and which connections take it."""

    relay: RelayId
    only: bool = True
    """Whether all do. Otherwise those of TCP ports that have no other way."""
    nodes_answer: bool = True
    """Whether NodePorts are such a way."""
    namespaces: frozenset[str] | None = None
    """The namespaces with pods that may be reached; None for all."""

    def reaches(self, namespace: str) -> bool:
        return self.namespaces is None or namespace in self.namespaces


class RelayedPort(Struct, frozen=True, order=True):
    """A port of a pod, as one port of a Service leads to it."""

    group: str
    """The port of the Service: pods of one group stand in for each other."""
    namespace: str
    pod: str
    port: int

    @classmethod
    def parse(cls, text: str) -> RelayedPort:
        """Read one as it is printed. Raises ValueError."""
        group, separator, place = text.rpartition(" ")
        name, _, number = place.rpartition(":")
        namespace, slash, pod = name.partition("/")
        if not (separator and group and slash and namespace and pod):
            raise ValueError("a port of a Service, a pod and a port are expected")
        return cls(group, namespace, pod, int(number))

    def __str__(self) -> str:
        return f"{self.group} {self.namespace}/{self.pod}:{self.port}"

    @property
    def socket(self) -> str:
        """Return the name of its socket in the relay's directory."""
        return _digest(self.group, self.namespace, self.pod, str(self.port))[:24]


class Relayed(Struct, frozen=True):
    """How a backend is reached by a relay."""

    relay: RelayId
    port: RelayedPort

    @property
    def path(self) -> str:
        """Return the socket, seen from the directory of any proxy: short enough for every state home."""
        return f"../../{DIRECTORY}/{self.relay}/{self.port.socket}"


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()
