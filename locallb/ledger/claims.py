"""One claim as a file of the ledger, `<address>~<digest of the owner>.json`: its content, an index, and conflicts.

Files are read without following links, waiting or trusting: other users may write into a shared ledger. A conflict is
why an owner may not have an address or ports of it.

Not here: the lock and the directory (`claim_files`), and writing claims (`ledger`).
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from functools import lru_cache
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple, NoReturn

from msgspec import Struct

from locallb.model.errors import FAILING, ClientError, refuse_scarcity, reported
from locallb.model.identities import ClusterName, Home, IPAddress, ObjectKey, Owner, SharingKey
from locallb.model.memory import Memo
from locallb.model.snapshot import Claim, MappedPort, PortKey
from locallb.model.texts import owner_fields, owner_from
from locallb.patterns import pattern
from locallb.storage import files, paths

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
_UNFINISHED = pattern(r"\.(?P<name>.+)\.[0-9a-f]{8}" + re.escape(files.UNFINISHED))
_NAME = pattern(r"(?P<address>[0-9a-fA-F.:]+)~[0-9a-f]{16}\.json")


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
        problem = f"can't determine who holds {address}: {error}"
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


def _stamp(path: str) -> files.Stamp | None:
    try:
        return files.stamp(os.lstat(path))
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
        what = f"can't determine who is about to claim {address}"
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


_Held = PortKey | None
"""Place of a claim; None for the whole address, which an unreadable claim holds as well."""


class AddressClaims:
    """The claims of one address, indexed by owner and by port.

    A thousand Services may share an address: the index checks a port without going through all of their claims.
    """

    def __init__(self, entries: Sequence[ClaimFile]) -> None:
        self.entries = entries
        self._owners: dict[Owner, list[ClaimFile]] = defaultdict(list)
        self._places: dict[_Held, list[int]] = defaultdict(list)
        for number, entry in enumerate(entries):
            self._owners[entry.claim.owner].append(entry)
            for place in _places(entry.claim.ports):
                self._places[place].append(number)

    def of(self, owner: Owner) -> Sequence[ClaimFile]:
        return self._owners.get(owner, ())

    def in_the_way(self, ports: Collection[MappedPort]) -> Sequence[ClaimFile]:
        """Return claims that may conflict with `ports`, or with the whole address if there are none."""
        if not ports:
            return self.entries
        places = (None, *_places(ports))
        numbers = {number for place in places for number in self._places.get(place, ())}
        return [self.entries[number] for number in sorted(numbers)]


def _places(ports: Collection[MappedPort]) -> Sequence[_Held]:
    return [port.place for port in ports] or [None]


class ContendedError(LedgerError):
    """Another process is about to claim the address: read again."""


def refuse_copy(what: str, old: Owner, new: Owner) -> None:
    """Raise LedgerError if `old` lives in another directory that still exists: `new` is then a copy of that project."""
    if old.home.root != new.home.root and paths.is_another_directory(old.home.root, new.home.root):
        raise LedgerError(
            f"{what} belongs to {old}, which still exists, so the project at {new.home.root} looks like a copy: destroy"
            " the stack there or remove that directory, or give this stack another name and a state of its own"
        )


def is_shared(entry: ClaimFile, owner: Owner, sharing: SharingKey) -> bool:
    """Return whether the holder of `entry` and `owner` have agreed to share: both say so, and one plan makes both."""
    return bool(sharing and entry.sharing and entry.claim.owner.home == owner.home)


def are_apart(places: Collection[PortKey], others: Collection[PortKey]) -> bool:
    """Return whether neither is all of an address, and they have no port in common."""
    return bool(places and others) and frozenset(places).isdisjoint(others)


def is_within(places: frozenset[PortKey], held: frozenset[PortKey]) -> bool:
    """Return whether who has `held` needs nothing more to have `places`; none are all of an address."""
    return places <= held if places and held else places == held


def refuse_others(
    held: Iterable[ClaimFile], owner: Owner, sharing: SharingKey, ports: Collection[MappedPort] = (), *, alone: bool
) -> None:
    """Raise LedgerError for an unreadable claim, and if `alone` for one that doesn't share.

    Claims of ports of any owner don't conflict as long as they have no port in common. Nor does a claim that is
    temporarily unreadable conflict with an owner that takes nothing new.
    """
    for entry in held:
        if entry.claim.unread and not alone:
            continue
        if entry.problem:
            raise LedgerError(f"{entry.claim.address} can't be claimed: {entry.problem}")
        if entry.claim.owner == owner or not alone or is_shared(entry, owner, sharing):
            continue
        theirs = entry.claim.places
        if not (ports and theirs):
            _refuse(entry, owner, str(entry.claim.address), f"choose another address for {owner.service}")
        if common := sorted(port for port in ports if port.place in theirs):
            what = f"{entry.claim.address} port {common[0].number}/{common[0].protocol}"
            _refuse(entry, owner, what, "run again: the next plan chooses another port")


def refuse_unread(held: Iterable[ClaimFile]) -> None:
    """Raise LedgerError for a claim that can't be read just now, as it may be anybody's."""
    for doubtful in (entry for entry in held if entry.claim.unread):
        raise LedgerError(doubtful.problem)


def _refuse(entry: ClaimFile, owner: Owner, what: str, remedy: str) -> NoReturn:
    elsewhere = entry.claim.owner.home != owner.home
    other = "or destroy that stack" if elsewhere else "or run `locallb gc` if a lost state left it"
    raise LedgerError(f"{what} belongs to {entry.claim.owner}: {remedy}, {other} (its claim is {entry.path})")
