"""Clusters of kind in this host's container engine, each followed as a source `kubernetes` of its own.

The engine is chosen as kind itself chooses it. Endpoint and credentials come from the control-plane container, from the
administrator's kubeconfig, of which only certificates and tokens are used. They are kept, for this user only, in a
kubeconfig under a stable path: published data can be removed without the program, and after the container is removed.
An engine that doesn't answer isn't one without clusters: the last found ones count. A running cluster that is
deselected keeps its kubeconfig, so that its statuses can be withdrawn.

Not here: the allowed fields of a kubeconfig, and keeping it (`sources.kept_access`), and reading a cluster
(`sources.kubernetes.source`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import replace

from locallb.host.capabilities import UNIX, podman_place, state
from locallb.model.fields import LABEL, JsonObject
from locallb.model.identities import ClusterName, ContainerId, ContextName
from locallb.model.texts import few
from locallb.runtimes.docker.daemon import (
    DEFAULT,
    DOCKER,
    TIMEOUT,
    ContainerEngine,
    ContainersError,
    ContextError,
    DockerAbsentError,
    Document,
    docker_place,
)
from locallb.runtimes.docker.engine_api import LIFE, ContainerEvents, Containers
from locallb.runtimes.podman import PODMAN, PodmanContainers
from locallb.sources import SourceError, kept_access
from locallb.sources.entries import KindClusters, KubernetesSource
from locallb.sources.kept_access import LARGEST, SUFFIX, GeneratedAccess, ServerAddress, forgotten, put, retained
from locallb.sources.source import FinderType, Found
from locallb.storage import files

PROVIDER = "KIND_EXPERIMENTAL_PROVIDER"


def engine() -> ContainerEngine:
    """Return the engine that kind is configured to use; by default Docker, or Podman if only that is usable."""
    choice = os.environ.get(PROVIDER)
    if choice:
        return PODMAN if choice == "podman" else DOCKER
    alone = _docker_is_usual() and not state(DEFAULT.removeprefix(UNIX))
    return PODMAN if alone and state(podman_place().removeprefix(UNIX)) == "usable" else DOCKER


def _docker_is_usual() -> bool:
    """Return whether Docker is at its default address; a missing context is reported when Docker is used."""
    try:
        return bool(docker_place()["base_url"] == DEFAULT)
    except ContextError:
        return False


def client(timeout: float = TIMEOUT) -> Containers:
    return PodmanContainers(timeout) if engine() is PODMAN else Containers(timeout)


API_PORT = "6443/tcp"


def admitted(context: ContextName, admin: bytes | None, container: Document) -> GeneratedAccess:
    """Copy the allowed fields of the administrator's kubeconfig; empty if it isn't complete yet."""
    return kept_access.admitted(context, admin, lambda server: ServerAddress(endpoint(server, container)))


def endpoint(server: str, container: JsonObject) -> str:
    """Return how the API is reached from here: at its published port, otherwise at the container's own address.

    `server` is how the cluster's own machines call it: by the container's name, or by an address that may stay.
    """
    host = urlsplit(server).hostname or ""
    if host not in {str(container.get("Name") or "").lstrip("/"), (container.get("Config") or {}).get("Hostname")}:
        return server
    network = container["NetworkSettings"]
    for published in (network.get("Ports") or {}).get(API_PORT) or ():
        address = str(published["HostIp"])
        here = {"0.0.0.0": "127.0.0.1", "::": "[::1]", "": "127.0.0.1"}  # noqa: S104 - what Docker publishes on
        return f"https://{here.get(address, f'[{address}]' if ':' in address else address)}:{published['HostPort']}"
    addresses = [str(member["IPAddress"]) for member in network["Networks"].values() if member.get("IPAddress")]
    return f"https://{addresses[0]}:{API_PORT.partition('/')[0]}"


CLUSTER_LABEL, ROLE_LABEL = "io.x-k8s.kind.cluster", "io.x-k8s.kind.role"
ADMIN = "/etc/kubernetes/admin.conf"


class _Inspection(Struct, frozen=True):
    """The clusters in Docker: selected ones, and ones that were found before."""

    present: frozenset[str]
    running: frozenset[str]
    accesses: Mapping[str, GeneratedAccess]
    removed: tuple[str, ...]
    """Clusters that were found before and have no container."""


def find_clusters(source: KindClusters, directory: Path, *, keep: bool) -> Found[KubernetesSource]:
    """Find the clusters, and how each is reached: in files in `directory`, which are only written to `keep` them.

    Raises:
        SourceError: if Docker doesn't answer and no cluster is known, or a kubeconfig can't be kept.

    """
    existing = retained(directory)
    containers = client()
    try:
        inspect = _inspect(containers, source, existing)
    except ContainersError as error:
        return _as_last_found({name: path for name, path in existing.items() if _is_selected(source, name)}, error)
    elsewhere = _elsewhere(containers.engine, containers.host, directory, inspect.removed)
    usable = {name: access.text for name, access in inspect.accesses.items() if access.text}
    for name, text in usable.items():
        put("kind", directory / f"{name}{SUFFIX}", text, keep=keep)
    if keep and not elsewhere:
        for name in inspect.removed:
            put("kind", existing[name], forgotten(), keep=True)
        if usable:
            put("kind", _docker(directory), containers.host, keep=True)
    existing |= {name: directory / f"{name}{SUFFIX}" for name in usable}
    return _found(source, existing, inspect, elsewhere)


def names_of_clusters() -> frozenset[str]:
    """Return which clusters of kind this host's Docker has, running or not. Raises ContainersError."""
    return frozenset(_control_planes(client()))


def _inspect(containers: Containers, source: KindClusters, existing: Collection[str]) -> _Inspection:
    """Find the clusters among the containers. Raises ContainersError."""
    nodes = _control_planes(containers)
    present = {name for name in nodes if _is_selected(source, name)}
    ids = {name: ContainerId(str(node["Id"])) for name, node in nodes.items()}
    observed = {name: containers.inspect(ids[name]) for name in nodes if name in present or name in existing}
    running = {name: inspected for name, inspected in observed.items() if inspected and inspected["State"]["Running"]}
    accesses = {name: _way(name, containers, ids[name], inspected) for name, inspected in running.items()}
    removed = (name for name in sorted(existing) if name not in nodes)
    return _Inspection(frozenset(present), frozenset(running), accesses, tuple(removed))


def _found(
    source: KindClusters, existing: Mapping[str, Path], inspect: _Inspection, elsewhere: str
) -> Found[KubernetesSource]:
    """Return the found clusters. `elsewhere` is the reason that missing clusters may still exist; empty if none."""
    present = inspect.present | (
        {name for name in inspect.removed if _is_selected(source, name)} if elsewhere else set()
    )
    missing = [
        f"kind has no cluster {name}; make it, or take it out of local-lb:sources"
        for name in sorted(source.names - present)
    ]
    refused = {name for name in present if name in inspect.accesses and inspect.accesses[name].refused}
    young = sorted(name for name in present - refused if name not in existing)
    refusals = [_refusal(name, inspect.accesses[name], existing) for name in sorted(refused)]
    return Found(
        tuple(_source(name, existing[name]) for name in sorted(present) if name in existing),
        complaints=(elsewhere,) if elsewhere else (),
        notices=(*missing, *refusals, *(f"the cluster {name} isn't up yet" for name in young)),
        unready=any(name in inspect.running for name in young),
        removed=() if elsewhere else tuple(map(ClusterName, inspect.removed)),
    )


def _docker(directory: Path) -> Path:
    """Return where it is kept in which Docker the clusters were found."""
    return directory / "docker"


def _elsewhere(engine: ContainerEngine, host: str, directory: Path, removed: Collection[str]) -> str:
    """Explain that another engine ran the clusters, so they may still exist; empty if it is the same engine."""
    before = files.read(_docker(directory)) if removed else None
    if before in {None, host}:
        return ""
    return (
        f"source kind: {few(removed)} ran in the engine at {before}, this is {engine.name} at {host}, so those count as"
        f" last found; correct {engine.variable}, or remove {_docker(directory)} if they are gone for good"
    )


def _is_selected(source: KindClusters, name: str) -> bool:
    return not source.names or name in source.names


def _refusal(name: str, access: GeneratedAccess, existing: Collection[str]) -> str:
    sentence = f"the kubeconfig in the container of the cluster {name} of kind has {few(access.refused)}"
    so = "that is passed over" if name in existing else "so the cluster isn't read"
    return f"{sentence}; local-lb takes certificates and a token from there and nothing else, {so}"


def _as_last_found(existing: Mapping[str, Path], why: ContainersError) -> Found[KubernetesSource]:
    sentence = f"source kind: which clusters there are can't be found out: {why}"
    if not existing:
        raise SourceError(f"{sentence}; or take `kind` out of local-lb:sources")
    stale = f"{sentence}; so those count that were found last: {', '.join(sorted(existing))}"
    sources = tuple(_source(name, existing[name]) for name in sorted(existing))
    return Found(sources, complaints=(stale,), unready=not isinstance(why, DockerAbsentError))


def _source(name: str, path: Path) -> KubernetesSource:
    return KubernetesSource(ClusterName(name), str(path), ContextName(f"kind-{name}"), found=True)


def _control_planes(containers: Containers) -> dict[str, Document]:
    """Find the first control-plane container of each cluster, running or not. Raises ContainersError."""
    control_planes: dict[str, Document] = {}
    for container in sorted(containers.labelled(CLUSTER_LABEL), key=lambda container: str(container.get("Names"))):
        labels = container.get("Labels") or {}
        name, role = str(labels.get(CLUSTER_LABEL)), labels.get(ROLE_LABEL)
        if role == "control-plane" and LABEL.fullmatch(name):
            control_planes.setdefault(name, container)
    return control_planes


def _way(name: str, containers: Containers, identity: ContainerId, container: Document) -> GeneratedAccess:
    """Find out how a cluster is reached, from its container. Raises ContainersError."""
    return admitted(ContextName(f"kind-{name}"), containers.file(identity, ADMIN, LARGEST), container)


class Kind(FinderType[KindClusters]):
    """Clusters of kind: found through Docker, and followed by its events."""

    def find(self, finder: KindClusters, root: Path, directory: Path, *, keep: bool) -> Found[KubernetesSource]:
        del root
        found = find_clusters(finder, directory, keep=keep)
        sources = tuple(
            replace(source, loopback_backends=finder.loopback_backends, classes=finder.classes)
            for source in found.sources
        )
        return replace(found, sources=sources)

    def watch(self, finder: KindClusters, root: Path, changed: Callable[[str], None]) -> ContainerEvents:
        """Follow containers. After Docker went away or came back, the clusters are listed again."""
        del finder, root
        return ContainerEvents(CLUSTER_LABEL, LIFE, changed, lambda _fault: changed(""), client)


SOURCE = Kind()
