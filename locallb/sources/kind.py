"""The source `kind`: clusters of kind on this host's Docker, each taken as a source `kubernetes` of its own.

Endpoint and credentials come from the control-plane container and are kept, for this user only, in a kubeconfig under a
path that stays the same: what was made can be taken away without the program, and with the container gone. A Docker
that doesn't answer isn't one without clusters: then those count that were found last; one that runs and is no longer
meant keeps its kubeconfig, so that what it was given can be taken back. From a container come certificates and tokens
only. Not here: reading a cluster.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from locallb.clients import ClientError, files, foreign, places
from locallb.clients.containers import Containers, ContainersError, DockerAbsentError, Document
from locallb.clients.kubeconfig_file import UNWRITTEN
from locallb.planning.documents import DocumentError, read_documents
from locallb.planning.fields import LABEL
from locallb.planning.model import ClusterName
from locallb.planning.settings import KindSource, KubernetesSource
from locallb.planning.words import clipped, few
from locallb.sources import SourceError

CLUSTER_LABEL, ROLE_LABEL = "io.x-k8s.kind.cluster", "io.x-k8s.kind.role"
ADMIN = "/etc/kubernetes/admin.conf"
API_PORT = "6443/tcp"
_SUFFIX = ".kubeconfig"


LARGEST = 2**20
"""Bytes of the administrator's kubeconfig."""
_CLUSTER_FIELDS = frozenset({"server", "certificate-authority-data"})
_USER_FIELDS = frozenset({"client-certificate-data", "client-key-data", "token"})
"""What is taken from a container; anything else could run a command here, or read a file, or lead elsewhere."""


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


@dataclass(frozen=True, slots=True)
class _Way:
    """How a cluster's API is reached: a kubeconfig, empty where that can't be told, and what of it was refused."""

    text: str = ""
    refused: tuple[str, ...] = ()


def find_clusters(source: KindSource, directory: Path, *, keep: bool) -> Found:
    """Find the clusters, and how each is reached: in files in `directory`, which are only written to `keep` them.

    Raises:
        SourceError: if Docker doesn't answer and no cluster is known, or a kubeconfig can't be kept.

    """
    files_of = {path.name.removesuffix(_SUFFIX): path for path in sorted(directory.glob(f"*{_SUFFIX}"))}
    known = {name: path for name, path in files_of.items() if _is_usable(path)}
    containers = Containers()
    try:
        nodes = _control_planes(containers)
        there = {name: node for name, node in nodes.items() if _is_meant(source, name)}
        looked_at = {name: node for name, node in nodes.items() if name in there or name in known}
        seen = {name: containers.inspect(str(node["Id"])) for name, node in looked_at.items()}
        running = {name: one for name, one in seen.items() if one and one["State"]["Running"]}
        ways = {name: _way(name, containers, str(nodes[name]["Id"]), one) for name, one in running.items()}
    except ContainersError as error:
        return _as_last_found({name: path for name, path in known.items() if _is_meant(source, name)}, error)
    for name, way in ways.items():
        if way.text:
            known[name] = directory / f"{name}{_SUFFIX}"
            _put(known[name], way.text, keep=keep)
    gone = sorted(known.keys() - nodes.keys())
    for name in gone if keep else ():
        _put(known[name], _forgotten(), keep=keep)
    sources = tuple(_source(name, known[name]) for name in sorted(there) if name in known)
    missing = [
        f"kind has no cluster {name}; make it, or take it out of local-lb:sources"
        for name in sorted(source.names - nodes.keys())
    ]
    refused = [_refusal(name, ways[name], known) for name in sorted(there) if name in ways and ways[name].refused]
    young = [name for name in there if name not in known and not (name in ways and ways[name].refused)]
    unready = [f"the cluster {name} of kind isn't up yet" for name in sorted(young)]
    return Found(
        sources,
        notices=(*missing, *refused, *unready),
        unready=any(name in running for name in young),
        gone=tuple(map(ClusterName, gone)),
    )


def _is_meant(source: KindSource, name: str) -> bool:
    return not source.names or name in source.names


def _refusal(name: str, way: _Way, known: Collection[str]) -> str:
    told = f"the kubeconfig in the container of the cluster {name} of kind has {few(way.refused)}"
    so = "that is passed over" if name in known else "so the cluster isn't read"
    return f"{told}; local-lb takes certificates and a token from there and nothing else, {so}"


def _as_last_found(known: Mapping[str, Path], why: ContainersError) -> Found:
    told = f"source kind: which clusters there are can't be found out: {why}"
    if not known:
        raise SourceError(f"{told}; start Docker, or correct local-lb:sources")
    stale = f"{told}; so those count that were found last: {', '.join(sorted(known))}"
    sources = tuple(_source(name, known[name]) for name in sorted(known))
    return Found(sources, complaints=(stale,), unready=not isinstance(why, DockerAbsentError))


def _source(name: str, path: Path) -> KubernetesSource:
    return KubernetesSource(ClusterName(name), str(path), f"kind-{name}", found=True)


def _control_planes(containers: Containers) -> dict[str, Document]:
    """Find the first control-plane container of each cluster, running or not. Raises ContainersError."""
    found: dict[str, Document] = {}
    for one in sorted(containers.labelled(CLUSTER_LABEL), key=lambda one: str(one.get("Names"))):
        labels = one.get("Labels") or {}
        name, role = str(labels.get(CLUSTER_LABEL)), labels.get(ROLE_LABEL)
        if role == "control-plane" and LABEL.fullmatch(name):
            found.setdefault(name, one)
    return found


def _way(name: str, containers: Containers, identity: str, container: Document) -> _Way:
    """Find out how a cluster is reached, from its container. Raises ContainersError."""
    return admitted(f"kind-{name}", containers.file(identity, ADMIN, LARGEST), container)


def admitted(context: str, admin: bytes | None, container: Document) -> _Way:
    """Take from a cluster's administrator's kubeconfig what may be taken; nothing where that isn't made yet."""
    try:
        (document,) = read_documents(admin or b"", is_json=False)
        value: Any = document.value
        cluster, user = dict(value["clusters"][0]["cluster"]), dict(value["users"][0]["user"])
        cluster["server"] = endpoint(str(cluster["server"]), container)
    except (DocumentError, KeyError, IndexError, TypeError, ValueError):
        return _Way()
    refused = (*_beyond(cluster, _CLUSTER_FIELDS), *_beyond(user, _USER_FIELDS))
    cluster, user = _within(cluster, _CLUSTER_FIELDS), _within(user, _USER_FIELDS)
    if not user:
        return _Way(refused=refused or ("no certificate and no token",))
    return _Way(_text(context, cluster, user), refused)


def _beyond(section: Mapping[str, Any], fields: Collection[str]) -> tuple[str, ...]:
    return tuple(clipped(key) for key, value in section.items() if key not in fields or not isinstance(value, str))


def _within(section: Mapping[str, Any], fields: Collection[str]) -> dict[str, str]:
    return {key: value for key, value in section.items() if key in fields and isinstance(value, str)}


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


def _is_usable(path: Path) -> bool:
    """Tell whether a kept kubeconfig has a context, and nothing but what we take."""
    try:
        (document,) = read_documents(foreign.read(path, LARGEST), is_json=False)
        value: Any = document.value
        cluster, user = value["clusters"][0]["cluster"], value["users"][0]["user"]
        extra = _beyond(cluster, _CLUSTER_FIELDS) or _beyond(user, _USER_FIELDS)
        return bool(value["contexts"]) and not extra
    except (OSError, DocumentError, KeyError, IndexError, TypeError, ValueError, AttributeError):
        return False


def _put(path: Path, text: str, *, keep: bool) -> None:
    """Have readers of `path` find `text` there, written or not."""
    UNWRITTEN.pop(str(path), None)
    try:
        if files.read(path) == text:
            return
        if not keep:
            UNWRITTEN[str(path)] = text.encode()
            return
        places.private_directory(path.parent)
        files.write(path, text)
    except ClientError as error:
        raise SourceError(f"source kind: {path} can't be kept: {error}") from None
