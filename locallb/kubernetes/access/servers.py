"""URLs of API servers: whether they are valid, and whether the environment's proxy applies. Not here: requests."""

from __future__ import annotations

from collections.abc import Collection
from ipaddress import ip_address
from urllib.parse import urlsplit
from urllib.request import getproxies_environment, proxy_bypass_environment  # type: ignore[attr-defined]

_HTTPS = 443


def is_url(text: str, schemes: Collection[str]) -> bool:
    """Return whether a text is a URL of one of these schemes, with a host, and a port that there may be."""
    try:
        parts = urlsplit(text)
        return parts.scheme in schemes and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def is_local(server: str) -> bool:
    """Return whether the API is on this host: then no proxy of the environment is asked, as kubectl does it."""
    host = urlsplit(server).hostname or ""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def is_exempt(name: str, server: str) -> bool:
    """Return whether NO_PROXY has the name of a server that is dialled at an address: users know the name."""
    exempt = getproxies_environment().get("no", "").replace("*.", ".")
    place = f"{name}:{urlsplit(server).port or _HTTPS}"
    return bool(name) and bool(proxy_bypass_environment(place, {"no": exempt}))
