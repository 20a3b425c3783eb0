"""Ownership of a name in a shared zone: TXT records in addition to its own, in the format of external-dns.

Each record set of ours has a marker, a TXT record with a name that begins with the type (`a-web.lab.example`) and a
text with the owning stack and object. A record set without our marker is foreign. Pure.
"""

from __future__ import annotations

from msgspec import Struct

from locallb.model.identities import Home, ObjectKey, OwnerId, ZoneName
from locallb.model.naming import digest

TYPES = ("A", "AAAA", "CNAME")
"""Types of records that are ever ours."""
_HERITAGE = "heritage=external-dns"
_PREFIX = "external-dns/"
_DIGITS = 12


def marker_name(name: str, kind: str) -> str:
    """Return the name of the marker of a record set."""
    return f"{kind.lower()}-{name}"


def marker_fault(name: str, zone: ZoneName) -> str:
    """Return why a name can't have markers; empty if it can."""
    if name == zone:
        return f"{name} is the zone itself, whose records are its server's own; choose a name below it"
    longest = 63 - len(marker_name("", "CNAME"))
    if len(name.partition(".")[0]) > longest or len(name) > 253 - len(marker_name("", "CNAME")):
        return f"{name} leaves no room for the mark of its owner; use at most {longest} characters before the first dot"
    return ""


class Marker(Struct, frozen=True):
    """Owner of a record set."""

    owner: OwnerId
    """Which stack, in one word."""
    resource: str
    """Which object of it."""

    @classmethod
    def of(cls, owner: OwnerId, key: ObjectKey) -> Marker:
        """Mark what an object of a stack has."""
        kind = key.kind.removesuffix("s")
        return cls(owner, f"{kind}/{key.cluster}/{key.namespace}/{key.name}")

    @classmethod
    def parse(cls, text: str) -> Marker | None:
        """Read what anybody wrote; None where it is no marker."""
        heritage, *labels = text.strip('"').split(",")
        if heritage != _HERITAGE:
            return None
        existing = dict(
            label.removeprefix(_PREFIX).partition("=")[::2] for label in labels if label.startswith(_PREFIX)
        )
        return cls(OwnerId(existing.get("owner", "")), existing.get("resource", ""))

    def __str__(self) -> str:
        return f"{_HERITAGE},{_PREFIX}owner={self.owner},{_PREFIX}resource={self.resource}"


def early_owner_id(home: Home) -> OwnerId:
    """Return how the markers of a stack name it that has no id of its own."""
    return OwnerId(f"local-lb-{digest([home.project, home.stack, home.root])[:_DIGITS]}")
