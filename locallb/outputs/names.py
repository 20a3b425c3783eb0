"""The output `names`: names in zones of DNS providers, published once a load balancer is proven to serve.

A DnsName is one name in a zone with several writers, added and removed by one update each. StubZones is a block in a
cluster's CoreDNS configuration, by which its pods resolve the stack's zones: the block is marked and nothing else is
changed. It is added and removed by patches over the version that was read, and foreign text between its markers is
reported and left alone.

Names in embedded zones aren't published here: they are the configuration of an Envoy of the stack. Not here, too: the
content of a block (`dns.stubs`), and requests to a name server (`dns.provider`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from locallb.dns.owner_ids import owner_id
from locallb.dns.provider import DnsProvider, open_zone, written_at
from locallb.dns.records import Name
from locallb.dns.stubs import (
    CUSTOM,
    MAIN,
    NAMESPACE,
    BlockLocation,
    ConfigMap,
    StubError,
    block_in,
    changed_data,
    place_of,
    refusal,
    stub_block,
    text_at,
)
from locallb.dns.updates import UNMARKED, Former, Marker, Records, early_owner_id, holder, putting, removing
from locallb.dns.zones import RFC2136, UpdatedServer
from locallb.kubernetes.api import live_object
from locallb.kubernetes.api.servers import KubeError, NoContextError
from locallb.model.desired import DNS_NAME, STUB_ZONES, ResourceKey
from locallb.model.desired import DesiredResource as Resource
from locallb.model.errors import ClientError
from locallb.model.fields import at, text_of
from locallb.model.identities import OwnerId
from locallb.model.snapshot import Access
from locallb.model.texts import owner_fields
from locallb.outputs.output import Output, OutputContext, Planned
from locallb.planning.planned import Placement, Plan
from locallb.resources.properties import DnsNameInputs, DnsNameState, StubZonesInputs, StubZonesState
from locallb.resources.resource_type import ProviderError, ResourceType, grown

_NO_ID = OwnerId("")
ATTEMPTS = 3
"""Attempts to read and update a name that is changed concurrently."""


class DnsName(ResourceType[DnsNameInputs, DnsNameState]):
    """Puts, repairs and removes a name; what has no mark of this stack is left alone."""

    replaced_for = frozenset({"zone", "name", "server", "port", "provider", "place"})
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
                raise _foreign(new.name, zone, UNMARKED)
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
    fields |= {"provider": server.provider, "options": [f"{key}={text}" for key, text in options.items()]}
    return {**fields, "place": place} if (place := written_at(server)) else fields


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
        ((takes, True), (_NO_ID, True), (takes, False), (takes, True)) if takes else ((_NO_ID, True),) * ATTEMPTS
    )


def _marker(existing: DnsNameInputs) -> Marker:
    """Return the mark of what is there, or is to be. Raises ClientError."""
    marked = existing.marked if isinstance(existing, DnsNameState) else _NO_ID  # earlier versions' states don't say it
    return Marker.of(marked or existing.mark or owner_id(existing.owner.home), existing.owner.service)


def _foreign(name: str, zone: DnsProvider, party: str) -> ProviderError:
    owned_by = f"{name} isn't this stack's to change: {zone} has it for {party}"
    return ProviderError(f"{owned_by}; remove it there or choose another name")


def _contended(name: str, zone: DnsProvider) -> ProviderError:
    return ProviderError(f"{name} can't be changed: somebody else changes it in {zone} as well; run up again")


RIGHTS = "deploy/rbac-cluster-dns.yaml"
_Change = tuple[BlockLocation, Mapping[str, str | None]]
"""Where data of a ConfigMap is changed, and to what."""


class _Observed:
    """Both ConfigMaps of a cluster, as they were read."""

    def __init__(self, access: Access) -> None:
        self._existing = {name: live_object.config_map(access, NAMESPACE, name) for name in (MAIN, CUSTOM)}

    @property
    def both(self) -> tuple[ConfigMap | None, ConfigMap | None]:
        return self._existing[MAIN], self._existing[CUSTOM]

    def text(self, place: BlockLocation) -> str:
        return text_at(place, *self.both)

    def version(self, place: BlockLocation) -> str:
        return text_of(at(self._existing[place.config_map], "metadata", "resourceVersion"))


class StubZones(ResourceType[StubZonesInputs, StubZonesState]):
    """Puts, follows and removes the block."""

    replaced_for = frozenset({"access", "owner"})
    delete_first = True

    def create(self, new: StubZonesInputs) -> tuple[str, StubZonesState]:
        """Add the block; one with the marker of this stack is its own."""
        return _word(new), self._put(new, None)

    def read(self, state: StubZonesState) -> StubZonesState | None:
        """Check whether it is still there, for the port at which CoreDNS answers now.

        An API that doesn't answer says nothing, so nothing has changed.
        """
        try:
            observed = _Observed(state.access)
        except KubeError:
            return state
        block = block_in(observed.text(_place(state)), _word(state))
        if block == state.block == stub_block(_word(state), state.zones, observed.both[0]):
            return state
        return replace(state, zones=()) if block else None

    def leaves_nothing(self, state: StubZonesState) -> bool:
        """Return whether no block of this stack is there, or the whole cluster is gone."""
        try:
            observed = _Observed(state.access)
            places = BlockLocation(MAIN, "Corefile"), BlockLocation(CUSTOM, f"{_word(state)}.server")
        except NoContextError:
            return True
        except KubeError:
            return False
        return not any(block_in(observed.text(place), _word(state)) for place in places)

    def update(self, old: StubZonesState, new: StubZonesInputs) -> StubZonesState:
        """Put what is wanted now in place of what was."""
        return self._put(new, old)

    def delete(self, state: StubZonesState) -> None:
        """Remove the block, so that everything else is unchanged; a removed cluster has none any more."""
        if self.belongs_to_copied_project(state.owner):
            return
        with suppress(NoContextError):
            _written(state.access, lambda observed: self._removed(state, observed))

    def _put(self, new: StubZonesInputs, old: StubZonesState | None) -> StubZonesState:
        owner = _word(new)

        def decide(observed: _Observed) -> _Change | None:
            place = place_of(owner, *observed.both)
            if old and _place(old) != place and (removed := self._removed(old, observed)):
                return removed  # first, and then again
            wanted, existing = stub_block(owner, new.zones, observed.both[0]), block_in(observed.text(place), owner)
            if existing == wanted:
                return None
            if existing and old and existing != old.block:
                raise _changed(place, owner)
            if why := refusal(place, owner, new.zones, *observed.both):
                raise StubError(why)
            return place, changed_data(place, observed.text(place), owner, wanted)

        try:
            observed = _written(new.access, decide)
            place = place_of(owner, *observed.both)
            wanted = stub_block(owner, new.zones, observed.both[0])
        except StubError as error:
            raise ProviderError(f"zones for the pods of {new.owner.service.name}: {error}") from None
        return grown(self.state, new, config_map=place.config_map, key=place.key, block=wanted)

    def _removed(self, state: StubZonesState, observed: _Observed) -> _Change | None:
        place, owner = _place(state), _word(state)
        existing = block_in(observed.text(place), owner)
        if not existing:
            return None
        if existing != state.block:
            raise _changed(place, owner)
        return place, changed_data(place, observed.text(place), owner, "")


def _written(access: Access, decide: Callable[[_Observed], _Change | None]) -> _Observed:
    """Change ConfigMaps until nothing is left to `decide`, each over the version that was read; return both."""

    def step() -> _Observed | None:
        observed = _Observed(access)
        wanted = decide(observed)
        if wanted is None:
            return observed
        place, data = wanted
        patch = {"metadata": {"resourceVersion": observed.version(place)}, "data": dict(data)}
        live_object.patch_config_map(access, NAMESPACE, place.config_map, patch)
        return None

    changed = f"the ConfigMaps of CoreDNS in {NAMESPACE} are"
    return live_object.repeated(step, changed, f"{RIGHTS} has the rights for zones in clusters")


def versions(access: Access) -> object:
    """Return a value that changes with a write to either ConfigMap; None if the API doesn't answer."""
    try:
        observed = _Observed(access)
    except KubeError:
        return None
    return tuple(observed.version(BlockLocation(name, "")) for name in (MAIN, CUSTOM))


def _word(existing: StubZonesInputs) -> OwnerId:
    return early_owner_id(existing.owner.home)


def _place(state: StubZonesState) -> BlockLocation:
    return BlockLocation(state.config_map, state.key)


def _changed(place: BlockLocation, owner: str) -> ProviderError:
    why = f"somebody changed the lines between the marks of {owner} in {place}"
    return ProviderError(
        f"{why}; remove them with both marks (`kubectl edit`) and run again, or put back what was there"
    )


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
