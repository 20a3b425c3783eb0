"""The resource DnsName: a name in a zone with several writers, added and removed by one update each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from locallb.dns.owner_ids import owner_id
from locallb.dns.provider import DnsProvider, open_zone
from locallb.dns.updates import NO_OWNER, Former, Marker, Records, holder, putting, removing
from locallb.dns.zones import RFC2136, UpdatedServer
from locallb.model.errors import ClientError
from locallb.model.identities import OwnerId
from locallb.resources.properties import DnsNameInputs, DnsNameState
from locallb.resources.resource_type import ProviderError, ResourceType, grown

_NO_OWNER = OwnerId("")
ATTEMPTS = 3
"""Attempts to read and update a name that is changed concurrently."""


class DnsName(ResourceType[DnsNameInputs, DnsNameState]):
    """Puts, repairs and removes a name; what has no mark of this stack is left alone."""

    inputs = DnsNameInputs
    state = DnsNameState
    replaced_for = frozenset({"zone", "name", "server", "port", "provider"})
    delete_first = True
    """Both may be one zone, under two addresses of its server."""

    def create(self, new: DnsNameInputs) -> tuple[str, DnsNameState]:
        """Add the name, or adopt records with our marker."""
        return new.name, self._put(new)

    def read(self, state: DnsNameState) -> DnsNameState | None:
        """Read our records. A server that doesn't answer proves nothing: then they count as unchanged."""
        try:
            observed = self._zone(state).records(state.name)
        except ClientError:
            return state
        ours = {
            kind: values for kind, values in observed.records.items() if kind in observed.ours(_marker(state).owner)
        }
        return replace(state, records=written(ours), ttl=observed.ttl) if ours else None

    def leaves_nothing(self, state: DnsNameState) -> bool:
        """Return whether nothing there has the mark of this object; not so where the server doesn't answer."""
        try:
            return removing(state.name, _marker(state), self._zone(state).records(state.name)) is None
        except ClientError:
            return False

    def update(self, old: DnsNameState, new: DnsNameInputs) -> DnsNameState:
        """Replace the records by the desired ones."""
        return self._put(new, _marker(old))

    def delete(self, state: DnsNameState) -> None:
        """Remove the name if it still has the marker of this object: another one of this stack may have it now."""
        if self.belongs_to_copied_project(state.owner):
            return
        zone = self._zone(state)
        for _ in range(ATTEMPTS):
            update = removing(state.name, _marker(state), zone.records(state.name))
            if update is None or zone.apply(update, state.ttl):
                return
        raise _contended(state.name, zone)

    def _put(self, new: DnsNameInputs, before: Marker | None = None) -> DnsNameState:
        zone, marker, wanted = self._zone(new), _marker(new), records_of(new.records)
        classic = bool(new.takes)
        observed = zone.records(new.name, classic=classic)
        for takes, is_marked in _attempts(new.takes):
            existing = observed if is_marked else replace(observed, markers={})
            update = putting(new.name, wanted, marker, existing, Former(before, takes))
            claimed, observed = zone.apply(update, new.ttl), zone.records(new.name, classic=classic)
            if claimed and observed.records.keys() >= wanted.keys():
                return grown(self.state, new, marked=marker.owner)
            if claimed and (remaining := removing(new.name, marker, observed)):
                zone.apply(remaining, new.ttl)  # servers leave a CNAME out silently that has other records beside it
                raise _foreign(new.name, zone, NO_OWNER)
        if party := holder(marker.owner, observed):
            raise _foreign(new.name, zone, party)
        raise _contended(new.name, zone)

    def _zone(self, existing: DnsNameInputs) -> DnsProvider:
        return open_zone(existing.zone, _server(existing), self.root or Path())


def server_inputs(server: UpdatedServer) -> Mapping[str, Any]:
    """Write a server as the inputs have it."""
    options = dict(server.options)
    fields = {
        "server": str(server.address),
        "port": server.port,
        "tsig": options.pop("tsig", ""),
        "mark": server.owner,
        "takes": server.take_over,
    }
    if server.provider == RFC2136:
        return fields
    return {**fields, "provider": server.provider, "options": [f"{key}={text}" for key, text in options.items()]}


def _server(existing: DnsNameInputs) -> UpdatedServer:
    """Read what `server_inputs` wrote, but for owners of markers."""
    pairs = (text.partition("=")[::2] for text in (f"tsig={existing.tsig}", *existing.options))
    options = tuple((key, text) for key, text in pairs if text)
    return UpdatedServer(ip_address(existing.server), existing.port, existing.provider or RFC2136, options)


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


def _foreign(name: str, zone: DnsProvider, party: str) -> ProviderError:
    owned_by = f"{name} isn't this stack's to change: {zone} has it for {party}"
    return ProviderError(f"{owned_by}; remove it there or choose another name")


def _contended(name: str, zone: DnsProvider) -> ProviderError:
    return ProviderError(f"{name} can't be changed: somebody else changes it in {zone} as well; run up again")
