"""Kinds of holders of an address: a Service of this stack, several that share it, a pin, or a foreign holder.

Each decides which Services it admits, and explains refusals. Not here: the holder of each address (`holders`).
"""

from __future__ import annotations

from typing import Protocol as Interface

from msgspec import Struct

from locallb.model.identities import ObjectKey
from locallb.model.objects import Service
from locallb.planning.addresses.pins import Pins


class Holder(Interface):
    """A holder of an address."""

    def admits(self, service: Service) -> bool:
        """Return whether `service` may get the address, as far as its holder goes."""

    def __str__(self) -> str:
        """Return it as the rest of a sentence that begins with "which"."""


class ByService(Struct, frozen=True):
    """Held by a Service of this stack, or listed in the status of any Service."""

    key: ObjectKey
    why: str = "belongs to"

    def admits(self, service: Service) -> bool:
        """Admit this very Service, whatever its uid."""
        return service.key == self.key

    def __str__(self) -> str:
        return f"{self.why} Service {self.key}"


class ByGroup(Struct, frozen=True):
    """Held by Services of this stack with one sharing key, the oldest first."""

    members: tuple[Service, ...]
    leaving: bool = False
    """Another holder hasn't released it: its data plane may still stand, so none joins."""

    @property
    def sharing_key(self) -> str:
        """The sharing key that they have in common."""
        return self.members[0].sharing_key

    def admits(self, service: Service) -> bool:
        """Admit members, and who has the same key."""
        return service in self.members or (service.sharing_key == self.sharing_key and not self.leaving)

    def stronger(self, service: Service) -> tuple[Service, ...]:
        """Return the members with a stronger hold than `service`: older ones, or all if it holds nothing."""
        return self.members[: self.members.index(service)] if service in self.members else self.members

    def __str__(self) -> str:
        return f"is shared by {', '.join(str(member.key) for member in self.members)}"


def may_share(service: Service, other: Service) -> bool:
    """Return whether two Services may have one address: one key, no port in common, the same traffic policy."""
    return (
        bool(service.sharing_key)
        and service.sharing_key == other.sharing_key
        and service.traffic_policy is other.traffic_policy
        and not {(port.port, port.protocol) for port in service.ports}
        & {(port.port, port.protocol) for port in other.ports}
    )


class ByPin(Struct, frozen=True):
    """Kept free by the configuration for Services of one name or pattern, in whichever cluster they are."""

    service: str
    """`<namespace>/<name>`, either with `*`."""
    pins: Pins

    def admits(self, service: Service) -> bool:
        """Admit the Services that have this pin."""
        return self.pins.of(service.key) == self.service

    def __str__(self) -> str:
        return f"is pinned to {self.service}"


class ByOther(Struct, frozen=True):
    """Held by what no plan of this stack can move: another stack, a process, a Node."""

    why: str

    def admits(self, _service: Service) -> bool:
        """Admit none."""
        return False

    def __str__(self) -> str:
        return self.why
