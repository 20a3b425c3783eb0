"""The value of the key `dns`: a stack's zones, each with the server that answers for it.

Not here: how the key `dns` is parsed (`config.parsing.dns`), and what is told to servers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from msgspec import Struct, field

from locallb.dns.names import lies_in
from locallb.model.identities import IPAddress, OwnerId, ZoneName, place

TTL = 60
"""Seconds for which an answer may be kept, unless configured otherwise."""


class Embedded(Struct, frozen=True):
    """An Envoy of the stack answers, by UDP."""

    address: IPAddress
    port: int

    def __str__(self) -> str:
        return place(self.address, self.port)


class Rfc2136(Struct, frozen=True):
    """A name server that takes updates."""

    address: IPAddress
    port: int
    tsig: str = ""
    """The file that has the key, as the configuration names it; empty where the server wants none."""
    owner: OwnerId = OwnerId("")
    """Which owner the marks of names have; empty for the stack's own id."""
    take_over: OwnerId = OwnerId("")
    """The owner whose names become ours where the stack has them; empty for nobody."""

    def __str__(self) -> str:
        return place(self.address, self.port)


class Zone(Struct, frozen=True):
    """A zone, and its server."""

    name: ZoneName
    server: Embedded | Rfc2136


class DnsSettings(Struct, frozen=True):
    """The key `dns` of a stack."""

    zones: tuple[Zone, ...]
    template: str = ""
    """Of the name that every Service and Gateway gets; empty for none."""
    ttl: int = TTL
    records: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: MappingProxyType({}))
    """Names of the stack itself: addresses, or one other name."""
    in_status: bool = False
    """Statuses of Services, Gateways and Ingresses tell a name beside their addresses."""
    in_clusters: bool = False
    """The CoreDNS of running clusters is told of the zones."""

    @property
    def embedded(self) -> tuple[Embedded, ...]:
        """Return the places at which Envoy answers, each once."""
        return tuple(dict.fromkeys(zone.server for zone in self.zones if isinstance(zone.server, Embedded)))


def zone_of(name: str, zones: Sequence[Zone]) -> Zone | None:
    """Return the zone in which a name lies, of several the innermost; None if there is none."""
    having = [zone for zone in zones if lies_in(name, zone.name)]
    return max(having, key=lambda zone: len(zone.name), default=None)
