"""The entries of sources in the configuration, each parsed to a frozen value; and the routes to Nodes that are pods.

Nodes of Gardener's shoots are such pods: each is reached by the Node that runs its pod. All shoots may have one range
for their Nodes, so each route is to one address. Pure. Not here: reading the cluster that runs the Nodes
(`sources.kubernetes.nodes`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from ipaddress import ip_address, ip_network
from itertools import islice
from typing import ClassVar

from msgspec import Struct
from msgspec.structs import replace

from locallb.config.registry import CLASSES, LOOPBACK_BACKENDS, SourceEntry
from locallb.config.services import parse_pod_cidrs
from locallb.config.values import Mistakes
from locallb.model.fields import JsonObject, at, objects_of, text_of
from locallb.model.identities import ClusterName, ContextName, Family, IPAddress, IPNetwork
from locallb.model.objects import ServiceType
from locallb.model.routes import PodRoute
from locallb.model.texts import clipped, shown
from locallb.patterns import pattern

MACHINE_LABELS = {"app": "machine", "machine-provider": "local"}
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
        routes = by_shoot.setdefault(text_of(at(pod, "metadata", "namespace")).removeprefix(INFRA), {})
        for route in _routes_to(pod):
            routes.setdefault(route.destination, route)
    return {
        shoot: tuple(sorted(routes.values(), key=lambda route: route.order))
        for shoot, routes in sorted(by_shoot.items())
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


def _routes_to(pod: JsonObject) -> Iterator[PodRoute]:
    """Return a route a family; none for a pod that has no address or no Node yet."""
    gateways = {Family.of(address): address for address in reversed([*_addresses(pod, "hostIPs")])}
    for address in _addresses(pod, "podIPs"):
        if gateway := gateways.get(Family.of(address)):
            yield PodRoute(ip_network(address), gateway)


def _addresses(pod: JsonObject, key: str) -> Iterator[IPAddress]:
    for entry in islice(objects_of(at(pod, "status", key)), len(Family)):
        with suppress(ValueError):
            yield ip_address(text_of(at(entry, "ip")).replace("%", "-"))  # no address of one link


def printed_routes(routes: Iterable[PodRoute]) -> str:
    """Write ways, one a line."""
    return "".join(f"{route}\n" for route in routes)


def parsed_routes(text: str) -> tuple[PodRoute, ...]:
    """Read what this program wrote; nothing of a file that another program wrote."""
    try:
        return tuple(map(PodRoute.parse, text.splitlines()))
    except ValueError:
        return ()


_KUBERNETES_EXAMPLE = "{kubernetes: {name: CLUSTER, kubeconfig: FILE, context: CONTEXT}}"
_CLUSTER_TEXTS = {"kubeconfig": "a file such as ~/.kube/config", "context": "a name such as kind-shop"}

_RANGES = "podCIDRs"
_NODES, _NAMESPACE = "nodes", "namespace"
_OTHER = "{kubeconfig: FILE, context: CONTEXT, namespace: infra-CLUSTER}"


class MachinesFinder(Struct, frozen=True):
    """Where the Nodes of a cluster are pods: in a namespace of another one."""

    cluster: ClusterName
    """The cluster of the Nodes."""
    namespace: str
    kubeconfig: str = ""
    """The kubeconfig of the cluster that runs the Nodes, as in a source; a named file may belong to another user."""
    context: ContextName = ContextName("")
    consents: ClassVar[str] = ""
    """No consent is needed: a cluster that isn't of this host is named by its context."""
    type: ClassVar[str] = "kubernetes"
    live: ClassVar[bool] = True
    is_administered: ClassVar[bool] = False

    @property
    def name(self) -> str:
        """The finder's name: the cluster's."""
        return self.cluster

    @property
    def is_foreign(self) -> bool:
        """Whether another user's kubeconfig leads there, as one that is named here may."""
        return bool(self.kubeconfig)

    @property
    def place(self) -> str:
        return clipped(f"{self.context or self.kubeconfig or 'the current context'}, {self.namespace}")


class KubernetesSource(Struct, frozen=True):
    """A running cluster, by its API. Empty fields mean kubectl's own defaults."""

    cluster: ClusterName
    kubeconfig: str = ""
    """As written, relative to the project; empty: `$KUBECONFIG`, otherwise ~/.kube/config."""
    context: ContextName = ContextName("")
    """Empty: the kubeconfig's current context."""
    pod_cidrs: tuple[IPNetwork, ...] = ()
    """The ranges of its pods' addresses; empty: the ranges that its Nodes name."""
    found: bool = False
    """It was found and not named: it may not be up yet, which is not an error."""
    silent: str = ""
    """The reason that its API needn't answer, such as `is hibernated`; then it counts as last read, without error."""
    node_routes: tuple[PodRoute, ...] | None = None
    """The ways to its Nodes, where they are pods of another cluster; with any, even none, pods of its own have none."""
    reads_pod_ranges: bool = False
    """Its CNI is asked where its pods have their addresses."""
    forwarding: frozenset[ServiceType] | None = None
    """Whether this user may connect to pods through the API is asked where that may matter: types of Services with
    ports that may need it, besides LoadBalancers and what Gateways and Ingresses lead to. None: never."""
    loopback_backends: bool = False
    """Whether its Nodes and endpoints may have addresses of this host's loopback."""
    classes: bool = False
    """Whether it gets a GatewayClass and an IngressClass `local-lb`."""
    nodes: MachinesFinder | None = None
    """The source of the routes to its Nodes, where that is configured."""
    consents: str = ""
    """The file with the clusters that users confirmed; empty if there is none."""
    type: ClassVar[str] = "kubernetes"
    live: ClassVar[bool] = True

    def with_pod_ranges(self) -> KubernetesSource:
        """Return the same source, with the CNI's pod ranges read too, unless they make no difference."""
        return self if self.pod_cidrs or self.node_routes is not None else replace(self, reads_pod_ranges=True)

    def with_forwarding(self, types: frozenset[ServiceType]) -> KubernetesSource:
        """Return the same source, of which pods may be reached through the API."""
        return replace(self, forwarding=types)

    def with_node_routes(self, routes: tuple[PodRoute, ...]) -> KubernetesSource:
        return replace(self, node_routes=routes)

    @property
    def place(self) -> str:
        return clipped(self.context or self.kubeconfig or "the current context")


def _parse_kubernetes(mistakes: Mistakes, key: str, entry: Mapping[str, object]) -> KubernetesSource | None:
    key = f"{key}.kubernetes"
    cluster = mistakes.mapping(key, entry["kubernetes"], _KUBERNETES_EXAMPLE)
    mistakes.unknown(f"{key}.", cluster, ("name", *_CLUSTER_TEXTS, _RANGES, _NODES, LOOPBACK_BACKENDS, CLASSES))
    texts = mistakes.optional_texts(f"{key}.", cluster, _CLUSTER_TEXTS)
    if not cluster.get("name"):
        mistakes.add(key, f"the cluster has no name; write {_KUBERNETES_EXAMPLE}, the last two as needed")
        return None
    name = mistakes.label(f"{key}.name", cluster["name"], "shop")
    ranges = parse_pod_cidrs(mistakes, f"{key}.{_RANGES}", cluster.get(_RANGES, []))
    if not name:
        return None
    source = KubernetesSource(
        ClusterName(name),
        texts["kubeconfig"],
        ContextName(texts["context"]),
        ranges,
        loopback_backends=mistakes.flag(f"{key}.{LOOPBACK_BACKENDS}", cluster.get(LOOPBACK_BACKENDS, False)),
        classes=mistakes.flag(f"{key}.{CLASSES}", cluster.get(CLASSES, False)),
    )
    if _NODES not in cluster:
        return source
    if ranges:
        mistakes.add(f"{key}.{_RANGES}", "no route leads to pods where Nodes are pods themselves; remove it")
    nodes = _machines(mistakes, f"{key}.{_NODES}", cluster[_NODES], source.cluster)
    return replace(source, nodes=nodes, node_routes=())


def _machines(mistakes: Mistakes, key: str, value: object, cluster: ClusterName) -> MachinesFinder:
    """Read where Nodes are pods."""
    given = mistakes.mapping(key, value, _OTHER)
    mistakes.unknown(f"{key}.", given, (*_CLUSTER_TEXTS, _NAMESPACE))
    texts = mistakes.optional_texts(f"{key}.", given, _CLUSTER_TEXTS)
    usual = f"{INFRA}{cluster}"
    namespace = mistakes.label(f"{key}.{_NAMESPACE}", given.get(_NAMESPACE, usual), usual)
    return MachinesFinder(cluster, namespace, texts["kubeconfig"], ContextName(texts["context"]))


KUBERNETES_ENTRY = SourceEntry(("kubernetes",), _parse_kubernetes)


_KIND_EXAMPLE = "{kind: all} or {kind: [shop, test]}"


class KindClusters(Struct, frozen=True):
    """Clusters that kind made on this host's Docker."""

    names: frozenset[str] = frozenset()
    """Their names; empty for all."""
    loopback_backends: bool = False
    """Whether their Nodes and endpoints may have addresses of this host's loopback."""
    classes: bool = True
    """Whether they get a GatewayClass and an IngressClass `local-lb`."""
    type: ClassVar[str] = "kind"
    name: ClassVar[str] = ""
    place: ClassVar[str] = "kind"
    live: ClassVar[bool] = True
    is_foreign: ClassVar[bool] = False
    is_administered: ClassVar[bool] = True


def _parse_kind(mistakes: Mistakes, key: str, entry: Mapping[str, object]) -> KindClusters | None:
    entry_key, key, value = key, f"{key}.kind", entry["kind"]
    loopback = mistakes.flag(f"{entry_key}.{LOOPBACK_BACKENDS}", entry.get(LOOPBACK_BACKENDS, False))
    classes = mistakes.flag(f"{entry_key}.{CLASSES}", entry.get(CLASSES, True))
    if value == "all":
        return KindClusters(loopback_backends=loopback, classes=classes)
    if not isinstance(value, list | tuple) or not value:
        mistakes.add(key, f"{shown(value)} names no clusters; write {_KIND_EXAMPLE}")
        return None
    names = frozenset(
        name
        for item_key, item in mistakes.items(key, value, _KIND_EXAMPLE)
        if (name := mistakes.label(item_key, item, "shop"))
    )
    return KindClusters(names, loopback, classes)


KIND_ENTRY = SourceEntry(
    ("kind", LOOPBACK_BACKENDS, CLASSES), _parse_kind, finds=True, single_entry_example=_KIND_EXAMPLE
)


_GARDENER_EXAMPLE = '{gardener: {name: seed, kubeconfig: FILE, context: CONTEXT, shoots: ["shoot--local--*"]}}'
_SEED_TEXTS = {"kubeconfig": "a file such as ~/.kube/config", "context": "a name such as kind-gardener-local"}
_SHOOTS = "shoots"
_SHOOT = "shoot--local--shop, or with * for any text"
_PATTERN = pattern(r"[a-z0-9*-]{1,63}")
_OF_SHOOTS = "shoot--"


class GardenerFinder(Struct, frozen=True):
    """A seed of Gardener, and the shoots that it has."""

    cluster: ClusterName
    """The seed's name as a cluster."""
    kubeconfig: str = ""
    """The seed's, as that of a running cluster."""
    context: ContextName = ContextName("")
    shoots: frozenset[str] = frozenset()
    """Technical IDs, with `*` for any text; empty for all."""
    classes: bool = False
    """Whether the seed and its shoots get a GatewayClass and an IngressClass `local-lb`."""
    consents: str = ""
    """As that of a running cluster."""
    type: ClassVar[str] = "gardener"
    live: ClassVar[bool] = True
    is_foreign: ClassVar[bool] = False
    is_administered: ClassVar[bool] = False

    @property
    def name(self) -> str:
        return self.cluster

    @property
    def place(self) -> str:
        return clipped(self.context or self.kubeconfig or "the current context")


def _parse_gardener(mistakes: Mistakes, key: str, entry: Mapping[str, object]) -> GardenerFinder | None:
    key = f"{key}.gardener"
    seed = mistakes.mapping(key, entry["gardener"], _GARDENER_EXAMPLE)
    mistakes.unknown(f"{key}.", seed, ("name", *_SEED_TEXTS, _SHOOTS, CLASSES))
    texts = mistakes.optional_texts(f"{key}.", seed, _SEED_TEXTS)
    name = mistakes.label(f"{key}.name", seed.get("name", "seed"), "seed")
    if name.startswith(_OF_SHOOTS):
        mistakes.add(f"{key}.name", f"{name} is a name of shoots; call the seed otherwise, such as seed")
    shoots = _shoots(mistakes, f"{key}.{_SHOOTS}", seed.get(_SHOOTS, "all"))
    classes = mistakes.flag(f"{key}.{CLASSES}", seed.get(CLASSES, False))
    return (
        GardenerFinder(ClusterName(name), texts["kubeconfig"], ContextName(texts["context"]), shoots, classes)
        if name
        else None
    )


def _shoots(mistakes: Mistakes, key: str, value: object) -> frozenset[str]:
    """Read which ones: none for all."""
    if value == "all":
        return frozenset()
    if value in ([], ()):
        mistakes.add(key, f"the list is empty; write `all`, or names such as {_SHOOT}")
    names = mistakes.texts(key, value, f"all, or a list such as [{_SHOOT}]")
    for name in names:
        if not _PATTERN.fullmatch(name):
            mistakes.add(key, f"{shown(name)} is no shoot's technical ID; write one such as {_SHOOT}")
    return frozenset(names)


GARDENER_ENTRY = SourceEntry(("gardener",), _parse_gardener, finds=True)


_MANIFESTS_EXAMPLE = "{manifests: DIRECTORY, name: CLUSTER}"


class ManifestsSource(Struct, frozen=True):
    """A directory of manifests in place of a cluster. `directory` is as written, relative to the project."""

    cluster: ClusterName
    directory: str
    type: ClassVar[str] = "manifests"
    live: ClassVar[bool] = False
    found: ClassVar[bool] = False
    pod_cidrs: ClassVar[tuple[IPNetwork, ...]] = ()
    node_routes: ClassVar[None] = None
    nodes: ClassVar[None] = None

    def with_pod_ranges(self) -> ManifestsSource:
        """Return this source unchanged: its pod ranges are read anyway."""
        return self

    def with_forwarding(self, _types: frozenset[ServiceType]) -> ManifestsSource:
        """Return the same: it has no API."""
        return self

    def with_node_routes(self, _node_routes: tuple[PodRoute, ...]) -> ManifestsSource:
        """Return the same: no Node of it is a pod of another cluster."""
        return self

    @property
    def place(self) -> str:
        return clipped(self.directory)


def _parse_manifests(mistakes: Mistakes, key: str, entry: Mapping[str, object]) -> ManifestsSource | None:
    """Read them; the directory names the cluster where nothing else does."""
    directory = mistakes.text(f"{key}.manifests", entry["manifests"], "a directory such as examples/shop/manifests")
    if not directory:
        return None
    if "name" in entry:
        name = mistakes.label(f"{key}.name", entry["name"], "shop")
    else:
        name = cluster_name(directory)
        if not name:
            mistakes.add(key, f"{shown(directory)} gives the cluster no name; add `name`, such as {_MANIFESTS_EXAMPLE}")
    return ManifestsSource(ClusterName(name), directory) if name else None


def cluster_name(directory: str) -> str:
    """Make a DNS label of a directory's last part; empty if nothing is left of it."""
    last = directory.rstrip("/").rpartition("/")[2]
    return re.sub(r"[^a-z0-9]+", "-", last.lower()).strip("-")[:63].rstrip("-")


MANIFESTS_ENTRY = SourceEntry(("manifests", "name"), _parse_manifests)
