"""Leftover DNS names: those with a marker of this stack that its state doesn't know.

Not here: names in embedded zones, which go with their proxy.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path

from msgspec import Struct

from locallb.config.settings import Settings
from locallb.dns.markers import Marker
from locallb.dns.owner_ids import owner_id
from locallb.dns.rfc2136 import NameServer
from locallb.dns.updates import removing
from locallb.dns.zones import Rfc2136
from locallb.model.errors import ClientError
from locallb.model.identities import Home


class OrphanedName(Struct, frozen=True, order=True):
    """A name that no state knows."""

    name: str
    marker: Marker
    server: NameServer

    def let_go(self) -> None:
        """Remove it, unless another owner has it by now. Raises NameServerError."""
        if update := removing(self.name, self.marker, self.server.inspect(self.name)):
            self.server.send(update, 0)


def orphaned_names(home: Home, settings: Settings, root: Path, existing: Collection[str]) -> Iterator[OrphanedName]:
    """Find them in the zones that can be read; `existing` are the names in the state of stack `home`."""
    for zone in settings.dns.zones if settings.dns else ():
        if isinstance(zone.server, Rfc2136):
            key = root / Path(zone.server.tsig).expanduser() if zone.server.tsig else None
            server = NameServer(zone.name, str(zone.server.address), zone.server.port, key)
            try:
                owner = zone.server.owner or owner_id(home)
                marked = sorted(set(server.marked(owner)), key=lambda pair: pair[0])
            except ClientError:
                continue
            yield from (OrphanedName(name, marker, server) for name, marker in marked if name not in existing)
