"""One claim as a file of the ledger: `<address>~<digest of the owner>.json`, and what its content means.

Files are read without following links, waiting or trusting: others may write into a shared ledger. Only names and
content: permission to claim, and the time of writing, are decided in `ledger`.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
import time
from collections.abc import Iterable
from contextlib import suppress
from functools import lru_cache
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct

from locallb.model.errors import ClientError
from locallb.model.identities import ClusterName, Home, IPAddress, ObjectKey, Owner, SharingKey
from locallb.model.memory import Memo
from locallb.model.naming import owner_fields, owner_from
from locallb.model.snapshot import Claim, MappedPort
from locallb.model.system_errors import FAILING, refuse_scarcity, reported
from locallb.storage import files, stamps

UNKNOWN = Owner(Home("", "", ""), ObjectKey(ClusterName(""), "", ""))
"""Who holds an address when its file can't be understood."""
FORMAT = 2
"""Of a claim with ports, which says what of an address is held. Others are still written in the first format."""
_FIRST = 1
"""Of a claim that doesn't say of which format it is."""
TERM = "term~"
"""How the names of files begin that have the last term of a stack's leaders."""
LARGEST = 1 << 16
"""Bytes that a file of the ledger may have; ours have some hundreds."""
_STALE = 60.0
"""Seconds after which a file that is being written is one that a stopped writer left."""
_UNFINISHED = re.compile(r"\.(?P<name>.+)\.[0-9a-f]{8}" + re.escape(files.UNFINISHED))
_NAME = re.compile(r"(?P<address>[0-9a-fA-F.:]+)~[0-9a-f]{16}\.json")


class LedgerError(ClientError):
    """An address can't be claimed, or the ledger can't be used: one sentence."""


class ClaimFile(Struct, frozen=True):
    """A file of the ledger."""

    path: Path
    claim: Claim
    sharing: SharingKey = SharingKey("")
    """The key under which others of the same stack may hold the address, too; empty for none."""

    @property
    def problem(self) -> str:
        """Why its owner is UNKNOWN; empty where it isn't."""
        return self.claim.problem


def read_entry(path: Path, address: IPAddress) -> ClaimFile | None:
    """Read a claim; if its content is invalid, its owner is UNKNOWN. None if it is gone.

    A claim that a failing disk doesn't return is `unread`: its owner keeps the address, and no other gets it. Raises
    LedgerError if the host lacks the resources to read any.
    """
    try:
        file = files.find_shared(path, LARGEST)
        if file is None:
            return None
        document = json.loads(file.text)
        if isinstance(written := document.get("format", _FIRST), int) and written > FORMAT:
            return _newer(path, address, written)
        fields, sharing = document["owner"], document.get("sharing", "")
        ports = tuple(map(MappedPort.parse, document.get("ports", ())))
        texts = all(isinstance(value, str) for value in (sharing, *fields.values()))
        owner = owner_from(fields)
        if ip_address(document["address"]) != address or not texts:
            why = "its content isn't a claim of this address"
        elif _is_forged(file.uid, owner):
            why = f"user {file.uid} wrote it in the name of {owner}, whose directory is another user's"
        else:
            return ClaimFile(path, Claim(address, owner, ports), sharing)
    except files.FilesError as error:
        problem = f"who holds {address} can't be told: {error}"
        if error.is_scarcity:
            raise LedgerError(problem) from error
        if error.is_of_host:
            return ClaimFile(path, Claim(address, UNKNOWN, problem=problem, unread=True))
        why = str(error)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        why = "it is damaged"
    problem = f"{path} holds it, but {why}: remove the file if nobody uses {address}"
    return ClaimFile(path, Claim(address, UNKNOWN, problem=problem))


def _newer(path: Path, address: IPAddress, written: int) -> ClaimFile:
    """Return the claim of a newer version, which may mean more than this one understands."""
    problem = f"{path} holds it in the format {written}, and this version knows {FORMAT}: install a later local-lb"
    return ClaimFile(path, Claim(address, UNKNOWN, problem=problem))


def read_existing(path: str, address: IPAddress, memory: Memo[ClaimFile | None]) -> ClaimFile | None:
    """Read a claim, unless its file is the one that was read last: files are replaced, so that its stamp tells.

    What has a problem is read again each time. Raises LedgerError as `read_entry` does. The path is a text: to make and
    look up thousands of Paths takes longer than to ask for the stamps.
    """
    stamp = _stamp(path)
    entry = memory.of(path, lambda _stamp: read_entry(Path(path), address), stamp)
    if stamp is None or entry is None or entry.problem:
        memory.forget(path)
    return entry


def _stamp(path: str) -> stamps.Stamp | None:
    try:
        return stamps.stamp(os.lstat(path))
    except OSError:
        return None


def _is_forged(uid: int, owner: Owner) -> bool:
    """Check whether another user wrote a claim in the name of a project of ours."""
    if uid in {0, os.geteuid()}:
        return False
    try:
        return Path(owner.home.root).stat().st_uid == os.geteuid()
    except (OSError, ValueError):
        return False


def entry_text(address: IPAddress | None, owner: Owner, sharing: SharingKey, ports: Iterable[MappedPort] = ()) -> str:
    """Write a claim; one that isn't shared has no word of it, and one of a whole address none of ports."""
    shared = {"sharing": sharing} if sharing else {}
    parts = {"ports": [str(port) for port in ports]} if ports else {}
    written = FORMAT if ports else _FIRST
    claim = {"address": str(address), "format": written, "owner": dict(owner_fields(owner)), **shared, **parts}
    return json.dumps(claim, indent=1) + "\n"


def entry_name(address: IPAddress | None, owner: Owner) -> str:
    """Name the file of a claim."""
    digest = hashlib.sha256(json.dumps(owner_fields(owner), sort_keys=True).encode()).hexdigest()[:16]
    return f"{address}~{digest}.json"


@lru_cache(maxsize=8192)
def address_in(name: str) -> IPAddress | None:
    """Return the address of a claim file by its name; None if it isn't one."""
    if match := _NAME.fullmatch(name):
        with suppress(ValueError):
            return ip_address(match["address"])
    return None


class UnderWay(NamedTuple):
    """A claim that is about to be made."""

    address: IPAddress
    uid: int = -1
    """Who; -1 where that isn't known."""
    problem: str = ""
    """Why it isn't."""


def claimed_in(path: Path) -> UnderWay | None:
    """Read a claim in progress from an unfinished file; None if its writer has ended.

    If a failing disk hides it, it counts as in progress. A file that this user may not read doesn't: every writer's
    file is readable, but not one that is mounted over it. Raises LedgerError if the host lacks the resources to read
    any.
    """
    match = _UNFINISHED.fullmatch(path.name)
    address = address_in(match["name"]) if match else None
    if address is None:
        return None
    try:
        status = path.lstat()
    except OSError as error:
        what = f"who is about to claim {address} can't be told"
        refuse_scarcity(error, what, LedgerError)
        return UnderWay(address, problem=f"{what}: {reported(error)}") if error.errno in FAILING else None
    alive = stat.S_ISREG(status.st_mode) and abs(time.time() - status.st_ctime) < _STALE
    return UnderWay(address, status.st_uid) if alive else None


def unfinished(names: Iterable[str]) -> list[str]:
    """Return the names of unfinished files, of a writer that still runs or was stopped before the rename."""
    return [name for name in names if name[0] == "." and name.endswith(files.UNFINISHED)]


def likely(names: Iterable[str], address: IPAddress) -> list[str]:
    """Return the names among which all claims of `address` are: each claim looks at a thousand names several times."""
    start = f"{address}~"
    if address.version == 4:  # noqa: PLR2004 - there is one way to write it
        return [name for name in names if name.startswith(start)]
    return [name for name in names if ":" in name]


def is_ours(name: str) -> bool:
    """Return whether a file that is no claim belongs to the ledger all the same."""
    return bool(unfinished([name])) or name.startswith(TERM)
