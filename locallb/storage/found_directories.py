"""Directories of proxies that were found before: whose each is isn't read again for each of the Services in it.

Their files are replaced, never rewritten, so that stamps tell. Not here: what a directory is (`proxy_directories`).
"""

from __future__ import annotations

import os
from typing import TypeAlias

from locallb.model.identities import ProxyId
from locallb.storage import files as stamps
from locallb.storage.proxy_directories import OWNER, Proxies, ProxyDirectory

_Stamps: TypeAlias = tuple[stamps.Stamp, stamps.Stamp]
_FOUND: dict[str, tuple[_Stamps, ProxyDirectory]] = {}
"""By path."""


def find_former(proxies: Proxies, proxy: ProxyId) -> ProxyDirectory | None:
    """Return what `Proxies.find` does. Raises ProxiesError."""
    path = f"{proxies.root}/{proxy}"
    now, existing = _stamps(path), _FOUND.get(path)
    if existing and existing[0] == now:
        return existing[1]
    found = proxies.find(proxy)
    if found and found.owner and now:
        _FOUND[path] = now, found
    else:
        _FOUND.pop(path, None)
    return found


def _stamps(path: str) -> _Stamps | None:
    """Return which directory and which owner's file are there; None where one of them can't be seen."""
    try:
        return stamps.stamp(os.lstat(path)), stamps.stamp(os.lstat(f"{path}/{OWNER}"))
    except OSError:
        return None
