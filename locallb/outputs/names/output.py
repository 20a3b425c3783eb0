"""DNS names in zones whose servers take updates, as an output: published once the load balancer is proven to serve.

Names in embedded zones aren't published here: they are the configuration of an Envoy of the stack.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from locallb.dns.records import Name
from locallb.dns.zones import Rfc2136
from locallb.model.naming import owner_fields
from locallb.model.state_resource import DNS_NAME, STUB_ZONES
from locallb.outputs.names.dns_name import DnsName, written
from locallb.outputs.names.stub_zones import StubZones, versions
from locallb.outputs.output import Output, Planned, Telling
from locallb.planning.planned import Placement, Plan

if TYPE_CHECKING:
    import pulumi


class Names(Output):
    """Puts each name into its zone."""

    resource_types = (DnsName, StubZones)
    looked_after = frozenset({DNS_NAME, STUB_ZONES})

    def words(self, planned: Planned) -> Sequence[object]:
        """Return all that their resources get."""
        return [
            [name.name, name.zone.name, str(server), server.tsig, name.ttl, *written(name.records), *_mark(server)]
            for name, server in _told(planned)
        ]

    def tells(self, planned: Planned) -> bool:
        """Return whether it has such names."""
        return any(_told(planned))

    def stamp(self, plan: Plan) -> object:
        """Return the serials of zones and the versions of ConfigMaps; None of what doesn't answer."""
        zone_versions = {zone.key: versions(zone.access) for zone in plan.zones}
        zones = {(name.zone.name, server) for placement in plan.placements for name, server in _told(placement)}
        if not zones:
            return zone_versions or None
        from locallb.dns.rfc2136 import NameServer  # noqa: PLC0415 - most stacks have no such zone

        serials = {
            zone_server: NameServer(zone_server[0], str(zone_server[1].address), zone_server[1].port).serial()
            for zone_server in zones
        }
        return serials, zone_versions

    def declare(self, telling: Telling) -> pulumi.Resource:
        """Declare a DnsName for each; return the last."""
        import pulumi  # noqa: PLC0415 - for programs only

        from locallb.resources import declared  # noqa: PLC0415 - as above

        planned = telling.planned
        owner = owner_fields(planned.owner) if planned.owner else {}
        names = [
            declared.DnsName(
                f"{planned.key}/{name.name}",
                owner=owner,
                zone=name.zone.name,
                name=name.name,
                server=str(server.address),
                port=server.port,
                tsig=server.tsig,
                mark=server.owner,
                takes=server.take_over,
                ttl=name.ttl,
                records=list(written(name.records)),
                opts=pulumi.ResourceOptions(parent=telling.parent, depends_on=list(telling.ready)),
            )
            for name, server in _told(planned)
        ]
        return names[-1]


def _told(planned: Planned) -> Iterator[tuple[Name, Rfc2136]]:
    for name in planned.names if isinstance(planned, Placement) else ():
        if isinstance(name.zone.server, Rfc2136):
            yield name, name.zone.server


def _mark(server: Rfc2136) -> tuple[str, ...]:
    owners = (server.owner, server.take_over) if server.take_over else (server.owner,)
    return owners if any(owners) else ()


OUTPUT = Names()
