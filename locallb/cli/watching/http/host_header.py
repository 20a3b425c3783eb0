"""Parses the Host header of a request. Not here: which hosts are accepted."""

from __future__ import annotations

import re
from ipaddress import ip_address
from typing import NamedTuple

from locallb.cli.watching.http.http_messages import Request
from locallb.model.identities import IPAddress

_HOST = re.compile(r"(?:\[(?P<six>[0-9A-Fa-f:.]+(?:%[\w.~-]+)?)\]|(?P<name>[\w.-]+))(?::[0-9]{1,5})?", re.ASCII)


class Host(NamedTuple):
    """The name or address that a request was sent to, whatever the port."""

    name: str = ""
    """In lower case; a trailing dot stays, as only a name of DNS has one. Empty for an address, and for none."""
    address: IPAddress | None = None


def host_of(request: Request) -> Host | None:
    """Return the host of a request; an empty one without the header. None for several, and for an invalid one."""
    values = request.values("host")
    if len(values) > 1:
        return None
    return parse_host(values[0]) if values else Host()


def parse_host(value: str) -> Host | None:
    """Read the value of a Host header: `name`, an IPv4 address, or an IPv6 address in brackets, and perhaps a port."""
    if not value:
        return Host()
    match = _HOST.fullmatch(value)
    if match is None:
        return None
    try:
        address = ip_address(match["six"] or match["name"])
    except ValueError:
        return None if match["six"] else Host(match["name"].lower())
    return Host(address=address) if (address.version == 6) == bool(match["six"]) else None  # noqa: PLR2004 - IPv6
