"""An address and a port on this host's loopback, as a user writes it: `127.0.0.1:9477` or `[::1]:9477`."""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import IPv6Address, ip_address

from locallb.config.values import Mistakes
from locallb.model.identities import IPAddress
from locallb.model.texts import shown

METRICS, PAGE = "127.0.0.1:9477", "127.0.0.1:9478"
"""Usual places."""
_USUAL = {"metrics": METRICS, "page": PAGE}
_LAST_PORT = 65535


def loopback_place(text: str, usual: str = METRICS) -> tuple[IPAddress, int]:
    """Parse a place. Raises ValueError with a sentence that has the mistake and the `usual` place as the remedy."""
    address, port = _place(text, usual)
    if not address.is_loopback:
        raise ValueError(f"{address} isn't a loopback address, and others on the network could reach it; use {usual}")
    return address, port


def private_place(text: str) -> tuple[IPAddress, int]:
    """Read a place on the loopback or in a private network, reachable by its members. Raises as `loopback_place`."""
    address, port = _place(text, METRICS)
    if not address.is_private or address.is_unspecified:
        raise ValueError(f"{address} is no address of the loopback or of a private network; use {METRICS}")
    return address, port


def _place(text: str, usual: str) -> tuple[IPAddress, int]:
    host, colon, port = text.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    try:
        address = ip_address(host[1:-1] if bracketed else host)
    except ValueError:
        address = None
    if not colon or address is None or isinstance(address, IPv6Address) != bracketed:
        raise ValueError(f"{shown(text)} is no address with a port; write {usual}")
    if not (port.isascii() and port.isdigit()) or int(port) > _LAST_PORT:
        raise ValueError(f"{shown(port)} is no port; write {usual}")
    return address, int(port)


def parse_place(mistakes: Mistakes, config: Mapping[str, object], key: str) -> str:
    """Parse the address and port of a key; empty if invalid or absent."""
    if key not in config:
        return ""
    text = mistakes.text(key, config[key], f"a loopback address with a port, such as {_USUAL[key]}")
    try:
        if text:
            loopback_place(text, _USUAL[key])
    except ValueError as error:
        mistakes.add(key, str(error))
    return text
