"""Parses the keys for routes to pods: `podRoutes`, and `podCIDRs` of a source or cluster.

Pure. Not here: which routes that makes (`planning.routes.pod_routes`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from ipaddress import ip_network
from types import MappingProxyType

from locallb.config.registry import RUNTIMES
from locallb.config.settings import PodRouting
from locallb.config.source import Source
from locallb.config.values import Mistakes
from locallb.model.formatting import clipped, shown
from locallb.model.identities import ClusterName, IPNetwork

_KEY = "podCIDRs"
_RANGES = "a list such as [10.244.0.0/16]"
_PUBLISHED = "runtime docker or podman and network publish"
_WIDEST = {4: 8, 6: 16}
"""Bits of the widest range of one cluster's pods, by IP version."""


def parse_pod_routes(mistakes: Mistakes, config: Mapping[str, object], sources: Iterable[Source]) -> PodRouting:
    """Read `podRoutes`, and refuse what can't go with the runtime, or lets others choose this host's own routes."""
    value = config.get("podRoutes", PodRouting.OFF)
    if value is False:  # YAML 1.1 takes `off` for it
        return PodRouting.OFF
    if value not in list(PodRouting):
        mistakes.add("podRoutes", f"{shown(value)} is no place for routes; use off, host or container")
        return PodRouting.OFF
    routing, foreign = (
        PodRouting(str(value)),
        [source for source in sources if source.nodes and source.nodes.is_foreign],
    )
    if routing is PodRouting.HOST:
        _refuse_foreign(mistakes, foreign)
    elif routing is PodRouting.CONTAINER and not _is_published(config):
        remedy = "set both, or use off" if foreign else "use host"
        mistakes.add("podRoutes", f"container is for proxies with {_PUBLISHED}; {remedy}")
    return routing


def _is_published(config: Mapping[str, object]) -> bool:
    return config.get("runtime") in RUNTIMES.having("route_helper") and config.get("network", "host") != "host"


def _refuse_foreign(mistakes: Mistakes, sources: Iterable[Source]) -> None:
    for source in sources:
        mistakes.add(
            "podRoutes",
            f"host would let whoever writes the kubeconfig in `nodes` of {source.cluster} lead connections of this"
            f" host elsewhere; use container, with {_PUBLISHED}, or if that kubeconfig is your own, name it in"
            " $KUBECONFIG instead",
        )


def parse_pod_cidrs(mistakes: Mistakes, key: str, value: object) -> tuple[IPNetwork, ...]:
    """Read where a cluster's pods have their addresses."""
    ranges = [_range(mistakes, path, item) for path, item in mistakes.items(key, value, _RANGES)]
    return tuple(cidr for cidr in ranges if cidr)


def parse_cidrs_of_clusters(mistakes: Mistakes, value: object) -> Mapping[ClusterName, tuple[IPNetwork, ...]]:
    """Read where the pods of each cluster have their addresses, whatever source it is of."""
    clusters = mistakes.mapping(_KEY, value, "clusters and their ranges, such as {kind: [10.42.0.0/16]}")
    return MappingProxyType(
        {
            ClusterName(mistakes.label(_KEY, name, "kind")): parse_pod_cidrs(
                mistakes, f"{_KEY}.{clipped(name)}", ranges
            )
            for name, ranges in clusters.items()
        }
    )


def _range(mistakes: Mistakes, key: str, value: object) -> IPNetwork | None:
    try:
        network = ip_network(str(value))
    except ValueError:
        mistakes.add(key, f"{shown(value)} is no range; write {_RANGES}")
        return None
    if network.prefixlen < _WIDEST[network.version]:
        mistakes.add(key, f"{network} is wider than a cluster's pods ever are; write what the CNI's configuration says")
        return None
    return network
