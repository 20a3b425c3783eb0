"""DNS names in zones with servers that take updates, as an output: published once the load balancer is proven to serve.

Names in embedded zones aren't published here: they are the configuration of an Envoy of the stack.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from locallb.dns.records import Name
from locallb.dns.zones import Rfc2136
from locallb.model.desired import DNS_NAME, STUB_ZONES, ResourceKey
from locallb.model.desired import DesiredResource as Resource
from locallb.model.texts import owner_fields
from locallb.outputs.names.dns_name import DnsName, written
from locallb.outputs.names.stub_zones import StubZones, versions
from locallb.outputs.output import Output, OutputContext, Planned
from locallb.planning.planned import Placement, Plan


class Names(Output):
    """Puts each name into its zone."""

    resource_types = (DnsName, StubZones)
    polled = frozenset({DNS_NAME, STUB_ZONES})

    def resources(self, planned: Planned, context: OutputContext) -> Sequence[Resource]:
        """Return a DnsName for each."""
        owner = owner_fields(planned.owner) if planned.owner else {}
        return [
            Resource(
                ResourceKey(DNS_NAME, f"{planned.key}/{name.name}"),
                {
                    "owner": owner,
                    "zone": name.zone.name,
                    "name": name.name,
                    "server": str(server.address),
                    "port": server.port,
                    "tsig": server.tsig,
                    "mark": server.owner,
                    "takes": server.take_over,
                    "ttl": name.ttl,
                    "records": list(written(name.records)),
                },
                context.parent,
                context.ready,
            )
            for name, server in _updated(planned)
        ]

    def stamp(self, plan: Plan) -> object:
        """Return the serials of zones and the versions of ConfigMaps; None of what doesn't answer."""
        zone_versions = {zone.key: versions(zone.access) for zone in plan.zones}
        zones = {(name.zone.name, server) for placement in plan.placements for name, server in _updated(placement)}
        if not zones:
            return zone_versions or None
        from locallb.dns.rfc2136 import NameServer  # noqa: PLC0415 - most stacks have no such zone

        serials = {
            zone_server: NameServer(zone_server[0], str(zone_server[1].address), zone_server[1].port).serial()
            for zone_server in zones
        }
        return serials, zone_versions


def _updated(planned: Planned) -> Iterator[tuple[Name, Rfc2136]]:
    """Yield its names in zones with servers that take updates."""
    for name in planned.names if isinstance(planned, Placement) else ():
        if isinstance(name.zone.server, Rfc2136):
            yield name, name.zone.server


OUTPUT = Names()
