"""How the API of a cluster of kind is reached: what is taken from the administrator's kubeconfig in its container.

Whoever made the container wrote that file, so certificates and tokens are taken, as texts, and nothing that could run a
command here, read a file, or lead elsewhere. Not here: finding containers, and keeping what was taken (`kind`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from locallb.kubernetes.documents import DocumentError, read_documents
from locallb.model.formatting import clipped
from locallb.runtimes.docker.engine_api import Document
from locallb.storage import foreign_files

API_PORT = "6443/tcp"
LARGEST = 2**20
"""Bytes of the administrator's kubeconfig."""
_CLUSTER_FIELDS = frozenset({"server", "certificate-authority-data"})
_USER_FIELDS = frozenset({"client-certificate-data", "client-key-data", "token"})
"""What is taken from a container; anything else could run a command here, or read a file, or lead elsewhere."""


@dataclass(frozen=True, slots=True)
class Way:
    """How a cluster's API is reached: a kubeconfig, empty where that can't be told, and what of it was refused."""

    text: str = ""
    refused: tuple[str, ...] = ()


def admitted(context: str, admin: bytes | None, container: Document) -> Way:
    """Take from a cluster's administrator's kubeconfig what may be taken; nothing where that isn't made yet."""
    try:
        (document,) = read_documents(admin or b"", is_json=False)
        value: Any = document.value
        cluster, user = dict(value["clusters"][0]["cluster"]), dict(value["users"][0]["user"])
        cluster["server"] = endpoint(str(cluster["server"]), container)
    except (DocumentError, KeyError, IndexError, TypeError, ValueError):
        return Way()
    refused = (*_beyond(cluster, _CLUSTER_FIELDS), *_beyond(user, _USER_FIELDS))
    cluster, user = _within(cluster, _CLUSTER_FIELDS), _within(user, _USER_FIELDS)
    if not user:
        return Way(refused=refused or ("no certificate and no token",))
    return Way(_text(context, cluster, user), refused)


def _beyond(section: Mapping[str, Any], fields: Collection[str]) -> tuple[str, ...]:
    return tuple(clipped(key) for key, value in section.items() if key not in fields or not isinstance(value, str))


def _within(section: Mapping[str, Any], fields: Collection[str]) -> dict[str, str]:
    return {key: value for key, value in section.items() if key in fields and isinstance(value, str)}


def endpoint(server: str, container: Mapping[str, Any]) -> str:
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


def _text(context: str, cluster: object, user: object) -> str:
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": context, "cluster": cluster}],
        "users": [{"name": context, "user": user}],
        "contexts": [{"name": context, "context": {"cluster": context, "user": context}}],
    }
    return yaml.safe_dump(document)


def is_usable(path: Path) -> bool:
    """Return whether a kept kubeconfig has a context, and nothing but what we take."""
    try:
        (document,) = read_documents(foreign_files.read(path, LARGEST), is_json=False)
        value: Any = document.value
        cluster, user = value["clusters"][0]["cluster"], value["users"][0]["user"]
        extra = _beyond(cluster, _CLUSTER_FIELDS) or _beyond(user, _USER_FIELDS)
        return bool(value["contexts"]) and not extra
    except (OSError, DocumentError, KeyError, IndexError, TypeError, ValueError, AttributeError):
        return False
