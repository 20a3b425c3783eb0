"""Resolves a name by this host's own resolver, as every program here does, and by a zone's server."""

from __future__ import annotations

from locallb.dns.zones import Zone
from locallb.host.observation import NameSeen
from locallb.threads.resolver import addresses_of

PATIENCE = 3.0
"""Seconds for the resolver, which may itself wait for servers that are away."""


def look(name: str, zone: Zone) -> NameSeen:
    """See what both answer."""
    return NameSeen(name, str(zone.server), asked_at(name, zone), asked_here(name))


def asked_here(name: str) -> frozenset[str]:
    """Return the addresses that this host's resolver knows for a name; none where it doesn't answer in time."""
    return frozenset(addresses_of(name, PATIENCE))


def asked_at(name: str, zone: Zone) -> frozenset[str] | None:
    """Return the addresses that the zone's server knows; None where it doesn't answer."""
    from locallb.dns.rfc2136 import NameServer, NameServerError  # noqa: PLC0415 - for stacks with zones only

    try:
        seen = NameServer(zone.name, str(zone.server.address), zone.server.port).addresses(name)
    except NameServerError:
        return None
    return frozenset(seen)
