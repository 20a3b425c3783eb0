"""Resolves a name by this host's own resolver, as every program here does, and by a zone's server."""

from __future__ import annotations

from locallb.dns.zones import Zone
from locallb.host.observation import ObservedName
from locallb.threads.resolver import addresses_of

TIMEOUT = 3.0
"""Seconds for the resolver, which may itself wait for servers that are away."""


def inspect(name: str, zone: Zone) -> ObservedName:
    """See what both answer."""
    return ObservedName(name, str(zone.server), requested_at(name, zone), queried_here(name))


def queried_here(name: str) -> frozenset[str]:
    """Return the addresses that this host's resolver knows for a name; none where it doesn't answer in time."""
    return frozenset(addresses_of(name, TIMEOUT))


def requested_at(name: str, zone: Zone) -> frozenset[str] | None:
    """Return the addresses that the zone's server knows; None where it doesn't answer."""
    from locallb.dns.rfc2136 import NameServer, NameServerError  # noqa: PLC0415 - for stacks with zones only

    try:
        observed = NameServer(zone.name, str(zone.server.address), zone.server.port).addresses(name)
    except NameServerError:
        return None
    return frozenset(observed)
