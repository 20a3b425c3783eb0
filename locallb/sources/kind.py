"""The source `kind`: clusters of kind on this host's Docker, each taken as a source `kubernetes` of its own.

Endpoint and credentials come from the control-plane container and are kept, for this user only, in a kubeconfig under a
path that stays the same: what was made can be taken away without the program, and with the container gone. A Docker
that doesn't answer isn't one without clusters: then those count that were found last. Not here: reading a cluster.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from locallb.clients import ClientError, files, places
from locallb.clients.containers import Containers, ContainersError, DockerAbsentError, Document
from locallb.planning.fields import LABEL
from locallb.planning.model import ClusterName
from locallb.planning.settings import KindSource, KubernetesSource
from locallb.sources import SourceError

CLUSTER_LABEL, ROLE_LABEL = "io.x-k8s.kind.cluster", "io.x-k8s.kind.role"
ADMIN = "/etc/kubernetes/admin.conf"
API_PORT = "6443/tcp"
_SUFFIX = ".kubeconfig"


@dataclass(frozen=True, slots=True)
class Found:
    """The clusters that there are, and what the user must hear of them."""

    sources: tuple[KubernetesSource, ...] = ()
    complaints: tuple[str, ...] = ()
    notices: tuple[str, ...] = ()
    unready: bool = False
    """A cluster is being made, or Docker was asked at a bad moment: a look in a second tells more."""
    gone: tuple[ClusterName, ...] = ()
    """Clusters that there were until now. One of the same name that comes later is another one."""


def find_clusters(source: KindSource, directory: Path) -> Found:
    """Find the clusters, and keep in `directory` how each is reached.

    Raises:
        SourceError: if Docker doesn't answer and no cluster is known, or a kubeconfig can't be kept.

    """
    kept = {path.name.removesuffix(_SUFFIX): path for path in sorted(directory.glob(f"*{_SUFFIX}"))}
    known = {name: path for name, path in kept.items() if _has_context(path)}
    containers = Containers()
    try:
        nodes = _control_planes(containers, source)
        seen = {name: containers.inspect(str(node["Id"])) for name, node in nodes.items()}
        running = {name: one for name, one in seen.items() if one and one["State"]["Running"]}
        for name, one in running.items():
            admin = containers.file(str(nodes[name]["Id"]), ADMIN)
            if text := _kubeconfig(name, admin, one):
                _keep(directory / f"{name}{_SUFFIX}", text)
                known[name] = directory / f"{name}{_SUFFIX}"
    except ContainersError as error:
        return _as_last_found(known, error)
    gone = sorted(known.keys() - nodes.keys())
    for name in gone:
        _keep(known[name], _forgotten())
    sources = tuple(_source(name, known[name]) for name in sorted(nodes) if name in known)
    missing = [
        f"kind has no cluster {name}; make it, or take it out of local-lb:sources"
        for name in sorted(source.names - nodes.keys())
    ]
    unready = [f"the cluster {name} of kind isn't up yet" for name in sorted(nodes.keys() - known.keys())]
    young = bool(running.keys() - known.keys())
    return Found(sources, notices=(*missing, *unready), unready=young, gone=tuple(map(ClusterName, gone)))


def _as_last_found(known: Mapping[str, Path], why: ContainersError) -> Found:
    told = f"source kind: which clusters there are can't be found out: {why}"
    if not known:
        raise SourceError(f"{told}; start Docker, or correct local-lb:sources")
    stale = f"{told}; so those count that were found last: {', '.join(sorted(known))}"
    sources = tuple(_source(name, known[name]) for name in sorted(known))
    return Found(sources, complaints=(stale,), unready=not isinstance(why, DockerAbsentError))


def _source(name: str, path: Path) -> KubernetesSource:
    return KubernetesSource(ClusterName(name), str(path), f"kind-{name}", found=True)


def _control_planes(containers: Containers, source: KindSource) -> dict[str, Document]:
    """Find the first control-plane container of each cluster that is meant, running or not. Raises ContainersError."""
    found: dict[str, Document] = {}
    for one in sorted(containers.labelled(CLUSTER_LABEL), key=lambda one: str(one["Names"])):
        name, role = one["Labels"][CLUSTER_LABEL], one["Labels"].get(ROLE_LABEL)
        if role == "control-plane" and LABEL.fullmatch(name) and (not source.names or name in source.names):
            found.setdefault(name, one)
    return found


def _kubeconfig(name: str, admin: bytes | None, container: Document) -> str:
    """Make the kubeconfig of a cluster from that of its administrator; empty where that isn't made yet."""
    try:
        document = yaml.safe_load(admin or b"")
        cluster, user = dict(document["clusters"][0]["cluster"]), document["users"][0]["user"]
        cluster["server"] = endpoint(str(cluster["server"]), container)
    except (yaml.YAMLError, KeyError, IndexError, TypeError, ValueError):
        return ""
    return _text(f"kind-{name}", cluster, user)


def endpoint(server: str, container: Mapping[str, Any]) -> str:
    """Tell how the API is reached from here: at its published port, otherwise at the container's own address.

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
    addresses = [str(one["IPAddress"]) for one in network["Networks"].values() if one.get("IPAddress")]
    return f"https://{addresses[0]}:{API_PORT.partition('/')[0]}"


def _text(context: str, cluster: object, user: object) -> str:
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": context, "cluster": cluster}],
        "users": [{"name": context, "user": user}],
        "contexts": [{"name": context, "context": {"cluster": context, "user": context}}],
    }
    return yaml.safe_dump(document)


def _forgotten() -> str:
    """Make a kubeconfig without a context: nobody waits for that cluster any more."""
    return yaml.safe_dump({"apiVersion": "v1", "kind": "Config", "contexts": []})


def _has_context(path: Path) -> bool:
    try:
        return bool((yaml.safe_load(files.read(path) or "") or {}).get("contexts"))
    except (ClientError, yaml.YAMLError, AttributeError):
        return False


def _keep(path: Path, text: str) -> None:
    try:
        if files.read(path) != text:
            places.private_directory(path.parent)
            files.write(path, text)
    except ClientError as error:
        raise SourceError(f"source kind: {path} can't be kept: {error}") from None
