"""DNS names in zones of DNS providers, as an output: published once the load balancer is proven to serve.

Names in embedded zones aren't published here: they are the configuration of an Envoy of the stack.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from locallb.dns.provider import open_zone
from locallb.dns.records import Name
from locallb.dns.zones import UpdatedServer
from locallb.model.desired import DNS_NAME, STUB_ZONES, ResourceKey
from locallb.model.desired import DesiredResource as Resource
from locallb.model.texts import owner_fields
from locallb.outputs.names.dns_name import DnsName, server_inputs, written
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
                    **server_inputs(server),
                    "ttl": name.ttl,
                    "records": list(written(name.records)),
                },
                context.parent,
                context.ready,
            )
            for name, server in _updated(planned)
        ]

    def stamp(self, plan: Plan) -> object:
        """Return the versions of zones and ConfigMaps; None of what doesn't answer."""
        of_clusters = {zone.key: versions(zone.access) for zone in plan.zones}
        zones = {
            (name.zone.name, server): placement.owner.home.root
            for placement in plan.placements
            for name, server in _updated(placement)
        }
        if not zones:
            return of_clusters or None
        return {zone: open_zone(*zone, Path(root)).version() for zone, root in zones.items()}, of_clusters


def _updated(planned: Planned) -> Iterator[tuple[Name, UpdatedServer]]:
    """Yield its names in zones of DNS providers."""
    for name in planned.names if isinstance(planned, Placement) else ():
        if server := name.zone.updated:
            yield name, server


OUTPUT = Names()
