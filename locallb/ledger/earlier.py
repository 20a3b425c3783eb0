"""Releases claims in a user's own ledger once `host setup` has made a ledger for all users.

Nothing else would ever release them, and others' plans still respect them.
"""

from __future__ import annotations

import os

from locallb.ledger.ledger import Ledger
from locallb.model.identities import IPAddress, Owner
from locallb.storage import paths


def release_earlier(address: IPAddress, owner: Owner) -> None:
    """Release what `owner` has claimed of `address` in ledgers that count no longer. Raises LedgerError."""
    _, *earlier = paths.ledgers()
    for path in earlier:
        if os.access(path, os.W_OK):
            Ledger(path).release(address, owner)
