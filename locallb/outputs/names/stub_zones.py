"""The resource StubZones: a block in a cluster's CoreDNS configuration, by which its pods resolve the stack's zones.

The block is marked and nothing else is changed: it is added and removed by patches over the version that was read, and
foreign text between its markers is reported and left alone. Not here: the content of a block (`dns.stubs`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress

from msgspec.structs import replace

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
from locallb.dns.updates import early_owner_id
from locallb.kubernetes.access.servers import ConflictError, ForbiddenError, KubeError, NoContextError
from locallb.kubernetes.api import live_service
from locallb.model.fields import at, text_of
from locallb.model.identities import OwnerId
from locallb.model.snapshot import Access
from locallb.resources.properties import StubZonesInputs, StubZonesState
from locallb.resources.resource_type import ProviderError, ResourceType, grown
from locallb.threads import jitter

_ATTEMPTS = 10
"""Conflicts with other writers of the ConfigMap, one after the other, before giving up."""
RIGHTS = "deploy/rbac-cluster-dns.yaml"
_Change = tuple[BlockLocation, Mapping[str, str | None]]
"""Where data of a ConfigMap is changed, and to what."""


class _Observed:
    """Both ConfigMaps of a cluster, as they were read."""

    def __init__(self, access: Access) -> None:
        self._existing = {name: live_service.config_map(access, NAMESPACE, name) for name in (MAIN, CUSTOM)}

    @property
    def both(self) -> tuple[ConfigMap | None, ConfigMap | None]:
        return self._existing[MAIN], self._existing[CUSTOM]

    def text(self, place: BlockLocation) -> str:
        return text_at(place, *self.both)

    def version(self, place: BlockLocation) -> str:
        return text_of(at(self._existing[place.config_map], "metadata", "resourceVersion"))


class StubZones(ResourceType[StubZonesInputs, StubZonesState]):
    """Puts, follows and removes the block."""

    inputs = StubZonesInputs
    state = StubZonesState
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
    for attempt in range(_ATTEMPTS):
        time.sleep(live_service.CONFLICTS.delay(attempt, jitter()))
        try:
            observed = _Observed(access)
            wanted = decide(observed)
            if wanted is None:
                return observed
            place, data = wanted
            patch = {"metadata": {"resourceVersion": observed.version(place)}, "data": dict(data)}
            live_service.patch_config_map(access, NAMESPACE, place.config_map, patch)
        except ForbiddenError as error:
            raise ProviderError(f"{error}; {RIGHTS} has the rights for zones in clusters") from None
        except ConflictError:
            continue
    raise ProviderError(
        f"the ConfigMaps of CoreDNS in {NAMESPACE} are changed by somebody again and again; run up again"
    )


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
