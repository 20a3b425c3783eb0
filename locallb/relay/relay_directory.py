"""The directory of a relay: `<state home>/relays/<12 hex digits>`, with what it serves, its owner and its sockets.

Not here: the process (`process`), and its resource (`provider.pod_routes`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from socket import AF_UNIX, SOCK_STREAM, socket

import msgspec
from msgspec import Struct

from locallb.model.errors import ClientError, refusal
from locallb.model.identities import Owner
from locallb.model.relays import DIRECTORY, RelayedPort, RelayId
from locallb.model.snapshot import Access
from locallb.patterns import pattern
from locallb.storage import files, paths

CONTROL, LOCK, LOG, SERVED = "control", "lock", "relay.log", "relay.json"
MARK, VERSION_MARK = "LOCALLB_RELAY", "LOCALLB_RELAY_VERSION"
"""Environment variables of a relay's process: its directory, and the version of its program."""
TIMEOUT = 2.0
"""Seconds for an answer on the control socket."""
_ID = pattern(r"[0-9a-f]{12}")
_LARGEST = 64 << 20


class RelayError(ClientError):
    """A relay's directory can't be used: one sentence."""


class Served(Struct, frozen=True):
    """What a relay serves."""

    access: Access
    ports: tuple[RelayedPort, ...]
    version: str
    owner: Owner


def relays_root() -> Path:
    return paths.state_home() / DIRECTORY


def path_of(relay: RelayId) -> Path:
    """Return the directory of a relay. Raises RelayError if that isn't an id."""
    if not _ID.fullmatch(relay):
        raise RelayError(f"{relay!r} isn't the id of a relay: twelve hex digits are expected")
    return relays_root() / relay


def write(directory: Path, served: Served) -> None:
    """Write what is to be served. Raises FilesError, PlaceError, RelayError if the directory is another stack's."""
    if (former := _former(directory)) and former.owner.home != served.owner.home:
        raise RelayError(f"{directory} belongs to {former.owner}; look at it and remove it")
    paths.private_directory(directory)
    files.write(directory / SERVED, msgspec.json.encode(served).decode() + "\n")


def read(directory: Path) -> Served:
    """Read what is to be served. Raises RelayError, FilesError."""
    text = files.read_shared(directory / SERVED, _LARGEST)
    if text is None:
        raise RelayError(f"{directory.absolute() / SERVED} is missing")
    try:
        return msgspec.json.decode(text, type=Served)
    except ValueError as error:
        raise RelayError(f"{directory.absolute() / SERVED} can't be read: {error}") from None


def _former(directory: Path) -> Served | None:
    with suppress(RelayError, files.FilesError):
        return read(directory)
    return None


def listed() -> Iterator[tuple[Path, Owner | None]]:
    """Return the directory of every relay, with its owner as far as that can be read."""
    root = relays_root()
    for path in sorted(root.iterdir()) if root.is_dir() else ():
        if _ID.fullmatch(path.name) and path.is_dir() and not path.is_symlink():
            served = _former(path)
            yield path, served.owner if served else None


def remove(directory: Path) -> None:
    """Remove a directory, the file that has its owner last. Raises RelayError."""
    try:
        names = sorted(directory.iterdir(), key=lambda path: path.name == SERVED) if directory.is_dir() else []
        for path in names:
            path.unlink(missing_ok=True)
        if directory.is_dir():
            directory.rmdir()
    except OSError as error:
        raise RelayError(f"{directory} can't be removed: {refusal(error)}") from error


class Answer(Struct, frozen=True):
    """What a relay says of itself."""

    version: str
    problem: str = ""


def ask(directory: Path) -> Answer | None:
    """Have a relay read again what to serve; return what it serves then, None if it doesn't answer."""
    try:
        with paths.by_descriptor(directory) as place, socket(AF_UNIX, SOCK_STREAM) as connection:
            connection.settimeout(TIMEOUT)
            connection.connect(str(place / CONTROL))
            content = b""
            while data := connection.recv(1 << 16):
                content += data
        return msgspec.convert(json.loads(content), Answer)
    except (OSError, ValueError):
        return None
