"""The outside party that an operation on a resource waits for, by the resource's type and inputs, as data.

A hanging party delays only operations on itself. Not here: scheduling (`engine.core`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from locallb.model.desired import (
    ADDRESS,
    CERTIFICATE,
    CONFIG,
    CONTAINER,
    DNS_NAME,
    GATEWAY_STATUS,
    INITIALIZED_NODE,
    OWN_CLASS,
    POD_ROUTES,
    PODMAN_CONTAINER,
    PORTS,
    PROCESS,
    REACHABLE,
    RELAY,
    SERVED_CERTIFICATE,
    SERVICE_CLAIM,
    SERVICE_CONFIG,
    SERVICE_EVENTS,
    SERVICE_STATUS,
    STUB_ZONES,
    Resource,
)

DOCKER, LEDGER, NETLINK, PODMAN, UNKNOWN = "docker", "ledger", "netlink", "podman", "unknown"
CHECK, CLUSTER, DNS, PROXY, RELAYS = "check", "cluster", "dns", "proxy", "relay"
MAX = 16
"""Operations of one party at a time: as many connections as a cluster or a daemon is asked to bear."""


class PartyCapacity(NamedTuple):
    """Capacity of a party: concurrent operations, or batches of all that waits; and the duration limit of one."""

    width: int = MAX
    is_batch: bool = False
    seconds: float = 1.0


_BATCHES = PartyCapacity(1, is_batch=True, seconds=10.0)
_CONTAINERS = PartyCapacity(seconds=30.0)
_ROOMS: Mapping[str, PartyCapacity] = {
    CHECK: PartyCapacity(64, seconds=10.0),  # a proof waits for an Envoy, with all others that this one serves
    DOCKER: _CONTAINERS,
    LEDGER: _BATCHES,
    NETLINK: _BATCHES,
    PODMAN: _CONTAINERS,
    PROXY: _BATCHES,
    RELAYS: PartyCapacity(1, seconds=10.0),
}


def _cluster(inputs: Mapping[str, object]) -> str:
    access = inputs.get("access")
    existing = access if isinstance(access, Mapping) else {}
    return f"{CLUSTER}/{existing.get('context', '')} of {existing.get('kubeconfig', '')}"


def _proxy(inputs: Mapping[str, object]) -> str:
    return f"{PROXY}/{inputs.get('proxy', '')}"


def _dns(inputs: Mapping[str, object]) -> str:
    """Return who writes a name: the provider's own place, or the zone's server."""
    server = f"{inputs.get('server', '')}:{inputs.get('port', '')}"
    return f"{DNS}/{inputs.get('place') or server}"


def _certificate(inputs: Mapping[str, object]) -> str:
    """Return who gives a certificate: a file of this host, or a Secret of a cluster."""
    return _proxy(inputs) if inputs.get("file") else _cluster(inputs)


def _routes(inputs: Mapping[str, object]) -> str:
    """Return the owner of routes: this host, or a container's own network."""
    return DOCKER if inputs.get("container") else NETLINK


_PARTIES: Mapping[str, Callable[[Mapping[str, object]], str]] = {
    ADDRESS: lambda _: LEDGER,
    PORTS: lambda _: LEDGER,
    CERTIFICATE: _proxy,
    SERVED_CERTIFICATE: _certificate,
    CONFIG: _proxy,
    PROCESS: _proxy,
    SERVICE_CONFIG: _proxy,
    CONTAINER: lambda _: DOCKER,
    PODMAN_CONTAINER: lambda _: PODMAN,
    REACHABLE: lambda inputs: f"{CHECK}/{inputs.get('proxy', '')}",
    POD_ROUTES: _routes,
    SERVICE_CLAIM: _cluster,
    SERVICE_STATUS: _cluster,
    SERVICE_EVENTS: _cluster,
    GATEWAY_STATUS: _cluster,
    STUB_ZONES: _cluster,
    OWN_CLASS: _cluster,
    INITIALIZED_NODE: _cluster,
    RELAY: lambda inputs: f"{RELAYS}/{inputs.get('relay', '')}",
    DNS_NAME: _dns,
}


def party_of(resource: Resource) -> str:
    """Return for whom operations on a resource wait; of a type that isn't ours it is UNKNOWN."""
    named = _PARTIES.get(resource.type)
    return named(resource.inputs) if named else UNKNOWN


def room_of(party: str) -> PartyCapacity:
    """Return how much a party bears."""
    return _ROOMS.get(party.partition("/")[0], PartyCapacity())
