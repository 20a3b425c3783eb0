"""LoopbackAddress: an address of this host, claimed for one owner in the ledger."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path

from locallb.ledger.earlier import release_earlier
from locallb.ledger.ledger import Ledger
from locallb.resources.codec import is_unknown
from locallb.resources.properties import LoopbackAddressInputs, LoopbackAddressState
from locallb.resources.resource_type import ResourceType, grown
from locallb.storage import paths


class LoopbackAddress(ResourceType[LoopbackAddressInputs, LoopbackAddressState]):
    """Claims, hands over and releases."""

    inputs = LoopbackAddressInputs
    state = LoopbackAddressState
    replaced_for = frozenset({"address"})
    """Replace for another address, new claim first; another owner takes over."""

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

    def preview_outputs(self, new: LoopbackAddressInputs, old: LoopbackAddressState | None) -> Mapping[str, object]:
        """Return the ledger."""
        del new
        return {"claim": old.claim if old else str(paths.ledger_directory())}

    def create(self, new: LoopbackAddressInputs) -> tuple[str, LoopbackAddressState]:
        """Claim it; a claim of ours in a ledger that counted before host setup is given up."""
        address, owner = ip_address(new.address), new.owner
        ledger = Ledger(paths.ledger_directory())
        ledger.claim(address, owner, new.sharing)
        release_earlier(address, owner)
        return new.address, grown(self.state, new, claim=str(ledger.directory))

    def read(self, state: LoopbackAddressState) -> LoopbackAddressState | None:
        """Check that the claim is still there and still ours."""
        ledger = Ledger(paths.ledger_directory())
        if ledger.holds(ip_address(state.address), state.owner):
            return replace(state, claim=str(ledger.directory))
        return None

    def update(self, old: LoopbackAddressState, new: LoopbackAddressInputs) -> LoopbackAddressState:
        """Hand the claim to the new owner in one step."""
        ledger = Ledger(paths.ledger_directory())
        ledger.reown(ip_address(new.address), old.owner, new.owner, new.sharing)
        return grown(self.state, new, claim=str(ledger.directory))

    def delete(self, state: LoopbackAddressState) -> None:
        """Release it where it was claimed, unless it belongs to the project that this one is a copy of."""
        owner = state.owner
        if not self.belongs_to_copied_project(owner):
            ledger = Ledger(Path(state.claim) if state.claim else paths.ledger_directory())
            ledger.release(ip_address(state.address), owner, mapped=False)
