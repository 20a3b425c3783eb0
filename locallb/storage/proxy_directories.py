"""The directories of proxies: `<root>/<12 hex digits>`, each with whose it is, what it is called and what runs in it.

A directory appears whole (made beside and renamed) and says `owner.json` until everything else in it is gone, so that
whatever a stopped run leaves can still be told apart by owner. Not here: Envoy's files, its process and its sockets.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TypeGuard

from msgspec import Struct
from msgspec.structs import asdict, replace

from locallb import safe_files
from locallb.model.errors import ClientError, refusal
from locallb.model.identities import Digest, Owner, ProxyId, ProxyName
from locallb.model.texts import owner_fields, owner_from
from locallb.patterns import pattern
from locallb.storage import files, paths

SHARED = 0o770
"""Mode of a directory that a container uses through our group; its parents stay closed to all other users."""
_GROUP = 0o070
OWNER = "owner.json"
RECORD = "process.json"
PROXY_MARK, OWNER_MARK = "LOCALLB_PROXY", "LOCALLB_OWNER"
"""Environment variables of a proxy's process: its directory, and its owner at its start, in case the directory is gone.
"""
_SMALL = 1 << 16
"""Bytes that a file of ours, other than a configuration, may have."""
_ID = pattern(r"[0-9a-f]{12}")
_UNFINISHED = pattern(r"\.[0-9a-f]{12}\.[0-9a-f]{8}\.new")


def is_id(proxy: str) -> TypeGuard[ProxyId]:
    """Return whether `proxy` may be the name of a proxy's directory."""
    return _ID.fullmatch(proxy) is not None


class ProxiesError(ClientError):
    """A proxy's directory can't be made, used or removed: one sentence."""


class ProxyDirectory(Struct, frozen=True):
    """A directory of the root, with its owner, which is None if it can't be read: never touch it then."""

    id: ProxyId
    path: Path
    owner: Owner | None
    name: ProxyName = ProxyName("")
    """The readable name."""


class ProcessRecord(Struct, frozen=True):
    """What was started in a directory."""

    pid: int
    started: str
    binary: str
    version: str
    bootstrap: Digest
    """sha256 (hex) of the bootstrap.json that it read."""


class Proxies:
    """The directories below `root`."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @classmethod
    def ours(cls) -> Proxies:
        """Return those of this user."""
        return cls(paths.proxies_root())

    def path(self, proxy: ProxyId) -> Path:
        """Return where the directory of `proxy` is. Raises ProxiesError if that isn't an id."""
        if not is_id(proxy):
            raise ProxiesError(f"{proxy!r} isn't the id of a proxy: twelve hex digits are expected")
        return self.root / proxy

    def list(self) -> tuple[ProxyDirectory, ...]:
        """Read every directory, those too that were never finished (their id is their file name)."""
        try:
            names = sorted(entry.name for entry in self.root.iterdir())
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise ProxiesError(f"{self.root} can't be read: {refusal(error)}") from error
        return tuple(_read(self.root / name) for name in names if _ID.fullmatch(name) or _UNFINISHED.fullmatch(name))

    def find(self, proxy: ProxyId) -> ProxyDirectory | None:
        """Read one directory; None if there is none."""
        path = self.path(proxy)
        return _read(path) if path.is_dir() and not path.is_symlink() else None

    def make(self, proxy: ProxyId, owner: Owner, name: ProxyName) -> ProxyDirectory:
        """Make the directory, or take the one that is `owner`'s already. Raises ProxiesError if it is another's."""
        directory = self.find(proxy)
        if directory and directory.owner and _same_service(directory.owner, owner):
            safe_files.remove_abandoned(directory.path)
            self._sign(directory.path, owner, name)
        elif directory and any(directory.path.iterdir()):
            owned_by = f"belongs to {directory.owner}" if directory.owner else f"has no readable {OWNER}"
            raise ProxiesError(
                f"proxy {proxy} of {owner} can't be made: {directory.path} {owned_by}; look at it and remove it"
            )
        else:
            self._publish(proxy, owner, name)
        return ProxyDirectory(proxy, self.path(proxy), owner, name)

    def sign(self, proxy: ProxyId, owner: Owner, name: ProxyName) -> None:
        """Write the owner of the existing directory if it changed."""
        self._sign(self.path(proxy), owner, name)

    def share(self, proxy: ProxyId, *, shared: bool) -> None:
        """Open the directory to our group, for a container, or close it."""
        files.set_mode(self.path(proxy), SHARED if shared else paths.PRIVATE)

    def is_shared(self, proxy: ProxyId) -> bool:
        """Return whether our group may use the directory."""
        return files.mode(self.path(proxy)) & _GROUP == _GROUP

    def remove(self, proxy: ProxyId) -> None:
        """Remove a directory, `owner.json` last, and what was to become it; absent is fine."""
        if not _UNFINISHED.fullmatch(proxy):
            self._remove_unfinished(proxy)
        path = self.root / proxy if _UNFINISHED.fullmatch(proxy) else self.path(proxy)
        if not path.is_dir() or path.is_symlink():
            return
        try:
            for entry in path.iterdir():
                if entry.is_dir() and not entry.is_symlink():
                    files.remove_tree(entry, path)
                elif entry.name != OWNER:
                    entry.unlink(missing_ok=True)
            (path / OWNER).unlink(missing_ok=True)
            path.rmdir()
        except (OSError, files.FilesError) as error:
            raise ProxiesError(f"{path} can't be removed: {error}") from error

    def record(self, proxy: ProxyId, record: ProcessRecord | None) -> None:
        """Note what runs in the directory, or that nothing does."""
        path = self.path(proxy) / RECORD
        try:
            if record is None:
                files.remove(path)
            else:
                files.write(path, json.dumps(asdict(record), indent=1) + "\n")
        except files.FilesError as error:
            raise ProxiesError(str(error)) from error

    def recorded(self, proxy: ProxyId) -> ProcessRecord | None:
        """Read what was started in the directory; None if nothing was, or nothing is noted that makes sense.

        Raises ProxiesError where it can't be read: something may be noted.
        """
        try:
            record = ProcessRecord(**json.loads(_small(self.path(proxy) / RECORD)))
            return replace(record, pid=int(record.pid), started=str(record.started))
        except (files.FilesError, ValueError, TypeError) as error:
            if isinstance(error.__cause__, PermissionError):
                raise ProxiesError(str(error)) from error
            return None

    def sweep(self) -> None:
        """Remove directories and files that killed runs left half made; what can't be removed stays."""
        with suppress(OSError):
            for name in os.listdir(self.root):  # noqa: PTH208 - of thousands, twice as fast
                with suppress(OSError, ProxiesError):
                    self._sweep(name)

    def _sweep(self, name: str) -> None:
        """Remove what one name in the root stands for, or what is left in it. Raises OSError, ProxiesError."""
        path = self.root / name
        if _UNFINISHED.fullmatch(name) and safe_files.is_stale(path):
            self.remove(ProxyId(name))
        elif is_id(name) and not path.is_symlink() and any(map(safe_files.is_temporary_name, os.listdir(path))):  # noqa: PTH208 - likewise
            safe_files.remove_abandoned(path)

    def _publish(self, proxy: ProxyId, owner: Owner, name: ProxyName) -> None:
        sibling = self.root / f".{proxy}.{secrets.token_hex(4)}{files.UNFINISHED}"
        try:
            paths.private_directory(sibling)
            files.write(sibling / OWNER, _text(owner, name))
            sibling.rename(self.path(proxy))
        except (OSError, paths.PlaceError, files.FilesError) as error:
            made = self.find(proxy)  # by what else of the same proxy needs it, at the same moment
            if made is None or made.owner != owner:
                raise ProxiesError(f"{self.path(proxy)} can't be made: {error}") from error
        self._remove_unfinished(proxy)

    def _remove_unfinished(self, proxy: ProxyId) -> None:
        """Remove the remains of runs that were killed while they made the directory."""
        for sibling in self.root.glob(f".{self.path(proxy).name}.*{files.UNFINISHED}"):
            if _UNFINISHED.fullmatch(sibling.name):
                with suppress(ProxiesError):  # they may still write to it: then they remove it
                    self.remove(ProxyId(sibling.name))

    def _sign(self, path: Path, owner: Owner, name: ProxyName) -> None:
        try:
            if files.read_shared(path / OWNER, _SMALL) != _text(owner, name):
                files.write(path / OWNER, _text(owner, name))
        except files.FilesError as error:
            raise ProxiesError(str(error)) from error


def marked_owner(environment: Mapping[str, str]) -> Owner | None:
    """Read a process's owner from its environment; None if it has none."""
    with suppress(ValueError, KeyError, TypeError):
        return owner_from(json.loads(environment[OWNER_MARK]))
    return None


def _same_service(held: Owner, wanted: Owner) -> bool:
    """Return whether a directory may be taken: the uid may differ, it is then left from the Service's previous life."""
    return (held.home, held.service) == (wanted.home, wanted.service)


def _read(path: Path) -> ProxyDirectory:
    with suppress(files.FilesError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        if path.is_symlink():
            raise ValueError
        document = json.loads(_small(path / OWNER))
        fields = {key: str(value) for key, value in document["owner"].items()}
        return ProxyDirectory(ProxyId(path.name), path, owner_from(fields), ProxyName(str(document["name"])))
    return ProxyDirectory(ProxyId(path.name), path, None)


def _small(path: Path) -> str:
    """Read a JSON document of ours. Raises FilesError, or ProxiesError where the host lacks what it takes to read."""
    try:
        return files.read_shared(path, _SMALL) or "null"
    except files.FilesError as error:
        if error.is_of_host:
            raise ProxiesError(str(error)) from error
        raise


def _text(owner: Owner, name: ProxyName) -> str:
    return json.dumps({"name": name, "owner": dict(owner_fields(owner))}, indent=1, ensure_ascii=False) + "\n"
