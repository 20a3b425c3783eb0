"""Ledgers that counted before `host setup` made one for all users: what this stack had there is given up.

Nobody else would ever release it, and others' plans go by it still.
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
