"""Removes a stack's proxies from the state home in which they live, so that they can be created in another one.

Addresses stay claimed where all users share the ledger. Not here: where a stack belongs.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path

from locallb.ledger.ledger import Ledger
from locallb.model.errors import ClientError
from locallb.model.identities import Home
from locallb.model.naming import owner_from
from locallb.model.state_resource import CLAIMS, CONFIG, PORTS, Resource
from locallb.runtimes.runtime import runtimes
from locallb.storage import paths
from locallb.storage.proxy_directories import Proxies, is_id


def leave(resources: Iterable[Resource], home: Home, state_home: Path) -> int:
    """End the proxies of stack `home` below `state_home`, and remove what is theirs there; return how many ran.

    Raises ClientError if one can't be ended, such as another user's.
    """
    existing = tuple(resources)
    ended = sum(runtime.leave(existing, home, state_home) for runtime in runtimes())
    for resource in existing:
        with suppress(ClientError, OSError, KeyError, ValueError, TypeError):  # closed to this user, and harmless
            if resource.type == CONFIG:
                _remove(Proxies(state_home / "proxies"), str(resource.inputs["proxy"]), home)
            elif resource.type in CLAIMS:
                _release(resource)
    return ended


def _remove(proxies: Proxies, proxy: str, home: Home) -> None:
    directory = proxies.find(proxy) if is_id(proxy) else None
    if directory and directory.owner and directory.owner.home == home:
        proxies.remove(directory.id)


def _release(resource: Resource) -> None:
    """Release a claim in a ledger that doesn't count here."""
    ledger, owner = Path(str(resource.outputs["claim"])), resource.inputs["owner"]
    if ledger != paths.ledger_directory() and isinstance(owner, dict):
        address, mapped = ip_address(str(resource.inputs["address"])), resource.type == PORTS
        Ledger(ledger).release(address, owner_from(owner), mapped=mapped)
