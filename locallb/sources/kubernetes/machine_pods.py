"""Nodes that are pods of another cluster, as those of Gardener's shoots: each is reached by the Node that runs its pod.

Pure. All shoots may have one range for their Nodes, so each route is to one address. Not here: reading that cluster
(`machines`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from ipaddress import ip_address, ip_network
from itertools import islice

from locallb.model.fields import JsonObject, at, objects_of, text_of
from locallb.model.identities import Family, IPAddress, IPNetwork
from locallb.model.network.routes import PodRoute

LABELS = {"app": "machine", "machine-provider": "local"}
"""Labels of these pods; bastions in the same namespace lack them."""
INFRA = "infra-"
"""Prefix of a shoot's technical ID in the name of the namespace of its Nodes."""
_ENDED = {"Succeeded", "Failed"}


def node_routes(pods: Iterable[JsonObject]) -> Mapping[str, tuple[PodRoute, ...]]:
    """Return the ways to the Nodes of each shoot, by its technical ID, in order: one to each address.

    Of pods that have one address, as while one takes the other's place, that counts which is there now.
    """
    by_shoot: dict[str, dict[IPNetwork, PodRoute]] = {}
    for pod in sorted(filter(_may_exist, pods), key=_presence, reverse=True):
        pod_paths = by_shoot.setdefault(text_of(at(pod, "metadata", "namespace")).removeprefix(INFRA), {})
        for way in _pod_paths(pod):
            pod_paths.setdefault(way.destination, way)
    return {
        shoot: tuple(sorted(pod_paths.values(), key=lambda way: way.order))
        for shoot, pod_paths in sorted(by_shoot.items())
    }


def _may_exist(pod: JsonObject) -> bool:
    return text_of(at(pod, "status", "phase")) not in _ENDED


def _presence(pod: JsonObject) -> tuple[bool, bool, str, str]:
    """Return a sort key that is largest for the pod with the address now: running, and the newest.

    The last part breaks ties, so that the answer is the same each time.
    """
    metadata = at(pod, "metadata")
    leaves, runs = bool(at(metadata, "deletionTimestamp")), text_of(at(pod, "status", "phase")) == "Running"
    return not leaves, runs, text_of(at(metadata, "creationTimestamp")), text_of(at(metadata, "name"))


def _pod_paths(pod: JsonObject) -> Iterator[PodRoute]:
    """Return a way a family; none for a pod that has no address or no Node yet."""
    gateways = {Family.of(address): address for address in reversed([*_addresses(pod, "hostIPs")])}
    for address in _addresses(pod, "podIPs"):
        if gateway := gateways.get(Family.of(address)):
            yield PodRoute(ip_network(address), gateway)


def _addresses(pod: JsonObject, key: str) -> Iterator[IPAddress]:
    for entry in islice(objects_of(at(pod, "status", key)), len(Family)):
        with suppress(ValueError):
            yield ip_address(text_of(at(entry, "ip")).replace("%", "-"))  # no address of one link


def printed(routes: Iterable[PodRoute]) -> str:
    """Write ways, one a line."""
    return "".join(f"{route}\n" for route in routes)


def parsed(text: str) -> tuple[PodRoute, ...]:
    """Read what this program wrote; nothing of a file that another program wrote."""
    try:
        return tuple(map(PodRoute.parse, text.splitlines()))
    except ValueError:
        return ()
