"""Owners of addresses and proxies, and who has which address."""

from __future__ import annotations

from locallb.ledger.ledger import Ledger
from locallb.model.identities import ClusterName, Home, IPAddress, ObjectKey, Owner, Uid


def owner(name: str, root: str = "/nowhere/shop", uid: str = "u1") -> Owner:
    return Owner(Home("shop", "dev", root), ObjectKey(ClusterName("local"), "default", name), Uid(uid))


def holders(ledger: Ledger) -> list[tuple[IPAddress, Owner]]:
    return [(claim.address, claim.owner) for claim in ledger.claims()]
