"""Access to a cluster of kind: taken from the administrator's kubeconfig in its container.

Not here: the allowed fields of a kubeconfig, and keeping it (`kept_access`), and finding containers (`finding`).
"""

from __future__ import annotations

from urllib.parse import urlsplit

from locallb.model.fields import JsonObject
from locallb.model.identities import ContextName
from locallb.runtimes.docker.daemon import Document
from locallb.sources import kept_access
from locallb.sources.kept_access import GeneratedAccess, ServerAddress

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
