"""The resource DnsName: a name in a zone with several writers, added and removed by one UPDATE each.

The client of name servers is loaded where it is used: most stacks have no such zone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from locallb.dns.owner_ids import owner_id
from locallb.dns.updates import NO_OWNER, Former, Marker, Records, holder, putting, removing
from locallb.model.errors import ClientError
from locallb.model.identities import OwnerId
from locallb.resources.properties import DnsNameInputs, DnsNameState
from locallb.resources.resource_type import ProviderError, ResourceType, grown

if TYPE_CHECKING:
    from locallb.dns.rfc2136 import NameServer

_NO_OWNER = OwnerId("")
ATTEMPTS = 3
"""Attempts to read and update a name that is changed concurrently."""


class DnsName(ResourceType[DnsNameInputs, DnsNameState]):
    """Puts, repairs and removes a name; what has no mark of this stack is left alone."""

    inputs = DnsNameInputs
    state = DnsNameState
    replaced_for = frozenset({"zone", "name", "server", "port"})
    delete_first = True
    """Both may be one zone, under two addresses of its server."""

    def create(self, new: DnsNameInputs) -> tuple[str, DnsNameState]:
        """Add the name, or adopt records with our marker."""
        return new.name, self._put(new)

    def read(self, state: DnsNameState) -> DnsNameState | None:
        """Read our records. A server that doesn't answer proves nothing: then they count as unchanged."""
        try:
            observed = self._server(state).inspect(state.name)
        except ClientError:
            return state
        ours = {
            kind: values for kind, values in observed.records.items() if kind in observed.ours(_marker(state).owner)
        }
        return replace(state, records=written(ours), ttl=observed.ttl) if ours else None

    def leaves_nothing(self, state: DnsNameState) -> bool:
        """Return whether nothing there has the mark of this object; not so where the server doesn't answer."""
        try:
            return removing(state.name, _marker(state), self._server(state).inspect(state.name)) is None
        except ClientError:
            return False

    def update(self, old: DnsNameState, new: DnsNameInputs) -> DnsNameState:
        """Replace the records by the desired ones."""
        return self._put(new, _marker(old))

    def delete(self, state: DnsNameState) -> None:
        """Remove the name if it still has the marker of this object: another one of this stack may have it now."""
        if self.belongs_to_copied_project(state.owner):
            return
        server = self._server(state)
        for _ in range(ATTEMPTS):
            update = removing(state.name, _marker(state), server.inspect(state.name))
            if update is None or server.send(update, state.ttl):
                return
        raise _contended(state.name, server)

    def _put(self, new: DnsNameInputs, before: Marker | None = None) -> DnsNameState:
        server, marker, wanted = self._server(new), _marker(new), records_of(new.records)
        classic = bool(new.takes)
        observed = server.inspect(new.name, classic=classic)
        for takes, is_marked in _attempts(new.takes):
            existing = observed if is_marked else replace(observed, markers={})
            update = putting(new.name, wanted, marker, existing, Former(before, takes))
            claimed, observed = server.send(update, new.ttl), server.inspect(new.name, classic=classic)
            if claimed and observed.records.keys() >= wanted.keys():
                return grown(self.state, new, marked=marker.owner)
            if claimed and (remaining := removing(new.name, marker, observed)):
                server.send(remaining, new.ttl)  # servers leave a CNAME out silently that has other records beside it
                raise _foreign(new.name, server, NO_OWNER)
        if party := holder(marker.owner, observed):
            raise _foreign(new.name, server, party)
        raise _contended(new.name, server)

    def _server(self, existing: DnsNameInputs) -> NameServer:
        from locallb.dns.rfc2136 import NameServer  # noqa: PLC0415 - see above

        path = (self.root or Path()) / Path(existing.tsig).expanduser() if existing.tsig else None
        return NameServer(existing.zone, existing.server, existing.port, path)


def written(records: Records) -> tuple[str, ...]:
    """Write records as the property has them."""
    return tuple(sorted(f"{kind} {value}" for kind, values in records.items() for value in values))


def records_of(texts: tuple[str, ...]) -> Mapping[str, tuple[str, ...]]:
    """Read what `written` wrote."""
    by_kind: dict[str, list[str]] = {}
    for text in texts:
        kind, _, value = text.partition(" ")
        by_kind.setdefault(kind, []).append(value)
    return {kind: tuple(values) for kind, values in by_kind.items()}


def _attempts(takes: OwnerId) -> Iterator[tuple[OwnerId, bool]]:
    """Yield for each attempt the owner with records to take over, and whether markers next to the name count.

    Markers to take over may be the answer of a wildcard, all of them or those next to the name: the server knows.
    """
    yield from (
        ((takes, True), (_NO_OWNER, True), (takes, False), (takes, True)) if takes else ((_NO_OWNER, True),) * ATTEMPTS
    )


def _marker(existing: DnsNameInputs) -> Marker:
    """Return the mark of what is there, or is to be. Raises ClientError."""
    marked = (
        existing.marked if isinstance(existing, DnsNameState) else _NO_OWNER
    )  # earlier versions' states don't say it
    return Marker.of(marked or existing.mark or owner_id(existing.owner.home), existing.owner.service)


def _foreign(name: str, server: NameServer, party: str) -> ProviderError:
    owned_by = f"{name} isn't this stack's to change: {server} has it for {party}"
    return ProviderError(f"{owned_by}; remove it there or choose another name")


def _contended(name: str, server: NameServer) -> ProviderError:
    return ProviderError(f"{name} can't be changed: somebody else changes it in {server} as well; run up again")
