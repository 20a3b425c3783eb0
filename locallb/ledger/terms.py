"""The terms of leaders: the last one with a write for a stack, a file for each stack of the ledger.

Not here: the election (`kubernetes.api.election`), and whether this process leads (`limits.fence`).
"""

from __future__ import annotations

import os
from pathlib import Path

from locallb.kubernetes.api.limits.fence import Fence, NotLeaderError
from locallb.ledger.claim_files import ClaimFiles
from locallb.ledger.claims import LARGEST, TERM, LedgerError
from locallb.model.identities import Home
from locallb.model.naming import digest
from locallb.model.system_errors import UNTOLD
from locallb.storage import files


def last_term(ledger: ClaimFiles, home: Home) -> int:
    """Return the last term in which a leader of this stack wrote here; -1 if there is none, or it is invalid.

    Raises LedgerError if the host can't read it: a former leader must not be taken for the current one.
    """
    try:
        return int(files.read_shared(_file(ledger, home), LARGEST) or -1)
    except files.FilesError as error:
        if error.is_of_host:
            raise LedgerError(f"who led this stack last can't be told: {error}") from error
        return -1
    except ValueError:
        return -1


def require_leader(ledger: ClaimFiles, home: Home, election: Fence) -> None:
    """Refuse a former leader of the stack; a later term than any before is written down, under the lock.

    Raises NotLeaderError, LedgerError.
    """
    term = election.term()
    if term is None or term == (last := last_term(ledger, home)):
        return
    if term < last:
        raise NotLeaderError(f"a later leader of {home} (term {last}) has written the ledger; term {term} is over")
    try:
        files.write(_file(ledger, home), f"{term}\n", mode=ledger.mode(), durable=True)
    except files.FilesError as error:
        raise LedgerError(f"the term {term} can't be written into the ledger: {error}") from error


def _file(ledger: ClaimFiles, home: Home) -> Path:
    """Name the file of a stack's term; if another user has put something there, a name with our user id.

    An inaccessible file counts as another user's as well, such as a mount point.
    """
    path = ledger.path / f"{TERM}{digest([home.project, home.stack, home.root])[:16]}"
    try:
        ours = path.lstat().st_uid in {0, os.geteuid()}
    except FileNotFoundError:
        ours = True
    except OSError as error:
        ours = error.errno in UNTOLD  # reading it tells why
    return path if ours else path.with_name(f"{path.name}~{os.geteuid()}")
