"""LoopbackPorts: ports of an address that all Services share, claimed for one owner in the ledger."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path

from locallb.ledger.earlier import release_earlier
from locallb.ledger.ledger import Ledger
from locallb.model.snapshot import MappedPort
from locallb.resources.codec import is_unknown
from locallb.resources.properties import LoopbackPortsInputs, LoopbackPortsState
from locallb.resources.resource_type import ResourceType, grown
from locallb.storage import paths


class LoopbackPorts(ResourceType[LoopbackPortsInputs, LoopbackPortsState]):
    """Claims, changes, hands over and releases."""

    inputs = LoopbackPortsInputs
    state = LoopbackPortsState
    replaced_for = frozenset({"address"})

    def check(self, new: LoopbackPortsInputs) -> Iterator[tuple[str, str]]:
        """Accept a loopback address and at least one port."""
        try:
            if not is_unknown(new.address) and not ip_address(new.address).is_loopback:
                yield "address", f"{new.address!r} isn't a loopback address"
        except ValueError:
            yield "address", f"{new.address!r} isn't an IPv4 or IPv6 address"
        try:
            if not is_unknown(new.ports) and not _parsed(new.ports):
                yield "ports", "there is none; leave the resource out"
        except ValueError as error:
            yield "ports", str(error)

    def preview_outputs(self, new: LoopbackPortsInputs, old: LoopbackPortsState | None) -> Mapping[str, object]:
        """Return the ledger."""
        del new
        return {"claim": old.claim if old else str(paths.ledger_directory())}

    def create(self, new: LoopbackPortsInputs) -> tuple[str, LoopbackPortsState]:
        """Claim them; a claim of ours in a ledger that counted before host setup is given up."""
        address, ledger = ip_address(new.address), Ledger(paths.ledger_directory())
        ledger.claim(address, new.owner, ports=_parsed(new.ports))
        release_earlier(address, new.owner)
        return f"{new.address}/{new.owner.service}", grown(self.state, new, claim=str(ledger.directory))

    def read(self, state: LoopbackPortsState) -> LoopbackPortsState | None:
        """Check that the claim is still there and still says the same."""
        ledger = Ledger(paths.ledger_directory())
        if ledger.holds(ip_address(state.address), state.owner, _parsed(state.ports)):
            return replace(state, claim=str(ledger.directory))
        return None

    def update(self, old: LoopbackPortsState, new: LoopbackPortsInputs) -> LoopbackPortsState:
        """Claim other ports, or hand them to the new owner, in one step."""
        ledger = Ledger(paths.ledger_directory())
        ledger.reown(ip_address(new.address), old.owner, new.owner, ports=_parsed(new.ports))
        return grown(self.state, new, claim=str(ledger.directory))

    def delete(self, state: LoopbackPortsState) -> None:
        """Release them where they were claimed, unless they belong to the project that this one is a copy of."""
        if not self.belongs_to_copied_project(state.owner):
            ledger = Ledger(Path(state.claim) if state.claim else paths.ledger_directory())
            ledger.release(ip_address(state.address), state.owner, mapped=True)


def _parsed(ports: Iterable[str]) -> tuple[MappedPort, ...]:
    return tuple(map(MappedPort.parse, ports))
