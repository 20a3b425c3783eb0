"""ServiceClaim, LoopbackAddress and LoopbackPorts: what is held for an owner until everything made for it is gone.

A ServiceClaim is our finalizer on a Service; the others are an address of this host, or ports of one, in the ledger.
"""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import TypeVar

from msgspec.structs import replace

from locallb.kubernetes.api import live_object
from locallb.kubernetes.events import DELETED, NORMAL
from locallb.kubernetes.status import FINALIZER, Live, claiming, has_finalizer, is_deleted, releasing
from locallb.ledger.ledger import Ledger
from locallb.model.identities import IPAddress, Owner, SharingKey
from locallb.model.reasons import Event
from locallb.model.snapshot import MappedPort
from locallb.resources.codec import is_unknown
from locallb.resources.properties import (
    LoopbackAddressInputs,
    LoopbackAddressState,
    LoopbackPortsInputs,
    LoopbackPortsState,
    ServiceClaimInputs,
    ServiceClaimState,
)
from locallb.resources.resource_type import ProviderError, ResourceType, grown
from locallb.storage import paths


class ServiceClaim(ResourceType[ServiceClaimInputs, ServiceClaimState]):
    """Sets the finalizer and takes it away."""

    def preview_outputs(self, new: ServiceClaimInputs, old: ServiceClaimState | None) -> Mapping[str, object]:
        del new, old
        return {"finalizer": FINALIZER}

    def create(self, new: ServiceClaimInputs) -> tuple[str, ServiceClaimState]:
        """Set it, unless the Service is on its way out."""
        if live_object.write(new.access, new.owner, _claiming) is None:
            raise ProviderError(f"{new.owner.service} was deleted meanwhile; run again")
        return str(new.owner.service), grown(self.state, new, finalizer=FINALIZER)

    def read(self, state: ServiceClaimState) -> ServiceClaimState | None:
        """Check whether it is there. An API that doesn't answer says nothing, so nothing is known to have changed."""
        return live_object.compare(state.access, state.owner, state, has_finalizer, lambda _live: None)

    def leaves_nothing(self, state: ServiceClaimState) -> bool:
        """Return whether it isn't there, or its cluster is gone for good."""
        return live_object.has_none(state.access, state.owner, has_finalizer)

    def update(self, old: ServiceClaimState, new: ServiceClaimInputs) -> ServiceClaimState:
        """Claim the Service of now, then let go of the one before, if it is another one."""
        claimed = self.create(new)[1]
        if old.owner != new.owner:
            live_object.withdraw(old.access, old.owner, releasing)
        return claimed

    def delete(self, state: ServiceClaimState) -> None:
        """Take it away, unless it belongs to the project that this one is a copy of."""
        if not self.belongs_to_copied_project(state.owner):
            live_object.withdraw(state.access, state.owner, releasing)
            live_object.report_to(state.access, state.owner, Event(NORMAL, DELETED, "nothing of it is left"))


def _claiming(service: Live) -> Mapping[str, object] | None:
    if is_deleted(service) and not has_finalizer(service):
        raise ProviderError(f"Service {service['metadata']['name']} is being deleted and can't be claimed; run again")
    return claiming(service)


_InputsT = TypeVar("_InputsT", LoopbackAddressInputs, LoopbackPortsInputs)
_StateT = TypeVar("_StateT", LoopbackAddressState, LoopbackPortsState)
_Claimed = tuple[SharingKey, tuple[MappedPort, ...]]


class _LoopbackClaim(ResourceType[_InputsT, _StateT]):
    """Claims, hands over and releases."""

    replaced_for = frozenset({"address"})
    """Replace for another address, new claim first; another owner takes over."""
    of_ports: bool
    """Whether it claims ports of the address, never all of it."""

    @abstractmethod
    def _identity(self, new: _InputsT) -> str:
        """Return the resource's id."""

    @abstractmethod
    def _claimed(self, existing: _InputsT | _StateT) -> _Claimed:
        """Return the sharing key, and the ports; none for all of the address."""

    def preview_outputs(self, new: _InputsT, old: _StateT | None) -> Mapping[str, object]:
        del new
        return {"claim": old.claim if old else str(paths.ledger_directory())}

    def create(self, new: _InputsT) -> tuple[str, _StateT]:
        """Claim it; a claim of ours in a ledger that counted before host setup is given up."""
        address, ledger = ip_address(new.address), Ledger(paths.ledger_directory())
        ledger.claim(address, new.owner, *self._claimed(new))
        _release_earlier(address, new.owner)
        return self._identity(new), grown(self.state, new, claim=str(ledger.directory))

    def read(self, state: _StateT) -> _StateT | None:
        """Check that the claim is still there, still ours and for the same ports."""
        ledger = Ledger(paths.ledger_directory())
        if ledger.holds(ip_address(state.address), state.owner, self._claimed(state)[1]):
            return replace(state, claim=str(ledger.directory))
        return None

    def update(self, old: _StateT, new: _InputsT) -> _StateT:
        """Claim other ports, or hand the claim to the new owner, in one step."""
        ledger = Ledger(paths.ledger_directory())
        ledger.reown(ip_address(new.address), old.owner, new.owner, *self._claimed(new))
        return grown(self.state, new, claim=str(ledger.directory))

    def delete(self, state: _StateT) -> None:
        """Release it where it was claimed, unless it belongs to the project that this one is a copy of."""
        if not self.belongs_to_copied_project(state.owner):
            ledger = Ledger(Path(state.claim) if state.claim else paths.ledger_directory())
            ledger.release(ip_address(state.address), state.owner, mapped=self.of_ports)


class LoopbackAddress(_LoopbackClaim[LoopbackAddressInputs, LoopbackAddressState]):
    """All of an address."""

    of_ports = False

    def check(self, new: LoopbackAddressInputs) -> Iterator[tuple[str, str]]:
        """Accept an address as its family writes it, so that one address has one name."""
        if is_unknown(new.address):
            return
        try:
            written = str(ip_address(new.address))
        except ValueError:
            yield "address", f"{new.address!r} isn't an IPv4 or IPv6 address"
        else:
            if written != new.address:
                yield "address", f"write {new.address!r} as {written!r}"

    def _identity(self, new: LoopbackAddressInputs) -> str:
        return new.address

    def _claimed(self, existing: LoopbackAddressInputs) -> _Claimed:
        return existing.sharing, ()


class LoopbackPorts(_LoopbackClaim[LoopbackPortsInputs, LoopbackPortsState]):
    """Ports of an address that all Services share."""

    of_ports = True

    def check(self, new: LoopbackPortsInputs) -> Iterator[tuple[str, str]]:
        """Accept a loopback address and at least one port."""
        try:
            if not is_unknown(new.address) and not ip_address(new.address).is_loopback:
                yield "address", f"{new.address!r} isn't a loopback address"
        except ValueError:
            yield "address", f"{new.address!r} isn't an IPv4 or IPv6 address"
        try:
            if not is_unknown(new.ports) and not self._claimed(new)[1]:
                yield "ports", "there is none; leave the resource out"
        except ValueError as error:
            yield "ports", str(error)

    def _identity(self, new: LoopbackPortsInputs) -> str:
        return f"{new.address}/{new.owner.service}"

    def _claimed(self, existing: LoopbackPortsInputs) -> _Claimed:
        return SharingKey(""), tuple(map(MappedPort.parse, existing.ports))


def _release_earlier(address: IPAddress, owner: Owner) -> None:
    """Release claims of `owner` on `address` in former ledgers, as no other run ever would.

    Raises LedgerError.
    """
    _, *earlier = paths.ledgers()
    for path in earlier:
        if os.access(path, os.W_OK):
            Ledger(path).release(address, owner)
