"""The zones of a stack, each with its server (the key `dns`), and the form of hostnames. Pure.

A name is written in lower case and without the dot at its end; its first label may be `*`.

Not here: how the key is parsed (`config.dns`), the owner of each name (`records`), and updates of servers (`updates`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from ipaddress import IPv4Address, IPv4Network
from itertools import chain
from types import MappingProxyType

from msgspec import Struct
from msgspec import field as field_msgspec
from msgspec.structs import replace

from locallb.model.identities import Home, IPAddress, OwnerId, ZoneName, place
from locallb.patterns import pattern

LONGEST = 253
"""Characters of a name."""
_LABEL = pattern(r"[a-z0-9_]([-a-z0-9_]{0,61}[a-z0-9_])?")
WILDCARD = "*"


def normal(text: str) -> str:
    """Return a name as it is compared."""
    return text.strip().lower().removesuffix(".")


def name_fault(name: str) -> str:
    """Return why this can't be a name, with the remedy; empty if it can."""
    if len(name) > LONGEST:
        return f"it has {len(name)} characters; use at most {LONGEST}"
    first, *rest = name.split(".")
    labels = rest if first == WILDCARD and rest else [first, *rest]
    if all(_LABEL.fullmatch(label) for label in labels):
        return ""
    return "use labels of at most 63 letters, digits and inner hyphens with dots between them, such as web.shop.test"


def is_wildcard(name: str) -> bool:
    """Return whether a name stands for all below another."""
    return name.startswith(f"{WILDCARD}.")


def is_hostname(name: str) -> bool:
    """Return whether a name may be that of a host: neither a wildcard nor underscores."""
    return not is_wildcard(name) and "_" not in name


def is_within(name: str, zone: str) -> bool:
    """Return whether a name is in a zone: its apex, or below it."""
    return name == zone or name.endswith(f".{zone}")


CLUSTER_DOMAIN = "cluster.local"
"""Where a cluster has its own names of Services; a stack has them as well if this or a part of it is a zone of it."""
TTL = 60
"""Seconds for which an answer may be kept, unless configured otherwise."""


CHOSEN = IPv4Address(0)
"""The address of a server that has one of the stack's own, which `with_servers` finds."""
NETWORK = IPv4Network("127.53.0.0/16")
"""Where those are."""
PORT = 5300


class Embedded(Struct, frozen=True):
    """An Envoy of the stack answers, by UDP."""

    address: IPAddress = CHOSEN
    port: int = PORT

    def __str__(self) -> str:
        return place(self.address, self.port)


RFC2136 = "rfc2136"


class UpdatedServer(Struct, frozen=True):
    """A server that a DNS provider writes each name to."""

    address: IPAddress
    port: int
    provider: str = RFC2136
    """The word of its DNS provider."""
    options: tuple[tuple[str, str], ...] = ()
    """Values of the provider's own keys, where they are given."""
    owner: OwnerId = OwnerId("")
    """Which owner the marks of names have; empty for the stack's own id."""
    take_over: OwnerId = OwnerId("")
    """Owner from which the stack takes over names; empty for none."""

    def __str__(self) -> str:
        return place(self.address, self.port)


class Zone(Struct, frozen=True):
    """A zone, and its server."""

    name: ZoneName
    server: Embedded | UpdatedServer

    @property
    def updated(self) -> UpdatedServer | None:
        """Return the server if names are written to it; None if the plan configures it with all of them."""
        return self.server if isinstance(self.server, UpdatedServer) else None


class DnsSettings(Struct, frozen=True):
    """The key `dns` of a stack."""

    zones: tuple[Zone, ...]
    template: str = ""
    """Of the name that every Service and Gateway gets; empty for none."""
    ttl: int = TTL
    records: Mapping[str, tuple[str, ...]] = field_msgspec(default_factory=lambda: MappingProxyType({}))
    """Names of the stack itself: addresses, or one other name."""
    in_status: bool = False
    """Statuses of Services, Gateways and Ingresses have a name in addition to their addresses."""
    short_names: str = ""
    """The namespace of which Services are called by their name alone, and those of others by `name.namespace`, by the
    server that has the names of a cluster; empty where no name is shorter than there."""
    in_clusters: bool = False
    """The CoreDNS of running clusters is configured with the zones."""

    @property
    def embedded(self) -> tuple[Embedded, ...]:
        """Return the places at which Envoy answers, each once."""
        return tuple(dict.fromkeys(zone.server for zone in self.zones if isinstance(zone.server, Embedded)))


def with_servers(
    dns: DnsSettings,
    home: Home,
    existing: Collection[Embedded],
    is_free: Callable[[Embedded], bool] = bool,
) -> DnsSettings:
    """Return the zones with the server that a stack has of its own, where they leave its address to the stack.

    It stays where it is on the loopback (`existing` are the stack's servers of before). Otherwise it is at an address
    for each stack: a hash of its name and directory, or the next one that is free.
    """
    given = {server.address for server in dns.embedded}
    if CHOSEN not in given:
        return dns
    loopback = (server for server in sorted(existing, key=str) if server.address.is_loopback)
    retained = (server for server in loopback if server.address not in given)
    server = next((server for server in chain(retained, _servers(home)) if is_free(server)), None) or next(
        _servers(home)
    )
    zones = (replace(zone, server=server) if zone.server == Embedded() else zone for zone in dns.zones)
    return replace(dns, zones=tuple(zones))


def _servers(home: Home) -> Iterator[Embedded]:
    digest = hashlib.sha256(f"{home.project}\0{home.stack}\0{home.root}".encode(errors="surrogateescape")).digest()
    first = int.from_bytes(digest[:4], "big")
    count = NETWORK.num_addresses
    return (Embedded(NETWORK[(first + step) % count]) for step in range(count))


def zone_of(name: str, zones: Sequence[Zone]) -> Zone | None:
    """Return the zone in which a name lies, of several the innermost; None if there is none."""
    having = [zone for zone in zones if is_within(name, zone.name)]
    return max(having, key=lambda zone: len(zone.name), default=None)


def is_of_clusters(zone: Zone) -> bool:
    return is_within(zone.name, CLUSTER_DOMAIN)
