"""Stores this user's own authority: `ca.crt`, readable by all users, and `ca.key`, readable only by its owner.

Any other content is reported in one sentence and left alone. The certificate is written last, so that an authority
without a key was never made. Not here: its certificates (`signing`), and its trust stores (`trust_stores`).
"""

from __future__ import annotations

import datetime as dt
import os
import pwd
import stat
from collections.abc import Iterable
from pathlib import Path

from msgspec import Struct

from locallb import safe_files
from locallb.certificates.local import DOMAINS
from locallb.certificates.signing import (
    CertificateDetails,
    KeyPair,
    SigningError,
    make_authority,
    make_certificate,
    observed,
    public_part,
)
from locallb.model.errors import ClientError
from locallb.storage import files, paths

CERTIFICATE, KEY = "ca.crt", "ca.key"
_PUBLIC = 0o644
_LIMIT = 1 << 16
_REMEDY = "make another one with `locallb ca create --replace`"


class AuthorityError(ClientError):
    """This user's own authority can't be used: one sentence."""


class Authority(Struct, frozen=True):
    """This user's own authority, its key left where it is."""

    directory: Path
    pem: str
    observed: CertificateDetails

    @property
    def file(self) -> Path:
        """Return where its certificate is."""
        return self.directory / CERTIFICATE


def now() -> dt.datetime:
    """Return what time it is."""
    return dt.datetime.now(dt.UTC)


def directory() -> Path:
    """Return where this user's authority is. Raises PlaceError."""
    return paths.data_home() / "ca"


def find(place: Path | None = None) -> Authority | None:
    """Return the authority that there is. Raises AuthorityError."""
    place = place or directory()
    if not _is_ours(place, 0o022, "write there"):
        return None
    text = _text(place / CERTIFICATE, 0o022, "write it")
    if text is None:
        return None
    try:
        return Authority(place, text, observed(text.encode()))
    except SigningError as error:
        raise AuthorityError(f"{place / CERTIFICATE} can't be used: {error}; {_REMEDY}") from None


def ensure(now: dt.datetime) -> Authority:
    """Return the authority, made if there is none. Raises ClientError."""
    return find() or create(DOMAINS, now)


def create(domains: Iterable[str], now: dt.datetime, *, replace: bool = False) -> Authority:
    """Make one, unless another process has meanwhile; `replace`: in any case. Raises ClientError."""
    place = paths.private_directory(directory())
    _is_ours(place, 0 if replace else 0o022, "write there")
    place.chmod(paths.PRIVATE)
    with files.locked(place):
        safe_files.remove_abandoned(place)
        if not replace and (existing := find(place)):
            return existing
        pair = make_authority(subject_of_user(), domains, now)
        _put(place, pair)
    return Authority(place, pair.certificate.decode(), observed(pair.certificate))


def _put(place: Path, pair: KeyPair) -> None:
    """Write both before the one that was there goes: a full disk takes none away. Raises FilesError."""
    sibling = {place / KEY: files.write_sibling(place / KEY, pair.key.decode(), durable=True)}
    try:
        sibling[place / CERTIFICATE] = files.write_sibling(
            place / CERTIFICATE, pair.certificate.decode(), mode=_PUBLIC, durable=True
        )
        files.remove(place / CERTIFICATE)
        for path, written in sibling.items():
            written.replace(path)
    finally:
        for written in sibling.values():
            safe_files.discard(written)


def fault(existing: Authority, now: dt.datetime) -> str:
    """Return why nothing can be signed with it, in one sentence; empty where it can."""
    try:
        key(existing, now)
    except AuthorityError as error:
        return str(error)
    return ""


def sign(existing: Authority, hosts: Iterable[str], now: dt.datetime) -> KeyPair:
    """Make a certificate for hosts. Raises AuthorityError."""
    return make_certificate(KeyPair(existing.pem.encode(), key(existing, now)), hosts, now)


def key(existing: Authority, now: dt.datetime) -> bytes:
    """Read the key, where it may be used now. Raises AuthorityError."""
    path = existing.directory / KEY
    if now < existing.observed.begins:
        raise AuthorityError(
            f"the clock says {now:%Y-%m-%d}, and {existing.file} is valid from {existing.observed.begins:%Y-%m-%d}: "
            f"set the clock"
        )
    if now >= existing.observed.ends:
        raise AuthorityError(f"{existing.file} has ended on {existing.observed.ends:%Y-%m-%d}; {_REMEDY}")
    text = _text(path, 0o077, "read it")
    if text is None:
        raise AuthorityError(
            f"{path} is gone, without which {existing.file} signs nothing; bring it back, or {_REMEDY}"
        )
    try:
        if public_part(text.encode()) != existing.observed.key:
            raise AuthorityError(f"{path} isn't the key of {existing.file}; bring back the right one, or {_REMEDY}")
    except SigningError as error:
        raise AuthorityError(f"{path} can't be used: {error}; bring it back, or {_REMEDY}") from None
    return text.encode()


def _text(path: Path, forbidden: int, party: str) -> str | None:
    """Read a file of ours; None if there is none. Raises AuthorityError."""
    if not _is_ours(path, forbidden, party):
        return None
    try:
        return files.read_shared(path, _LIMIT)
    except files.FilesError as error:
        raise AuthorityError(f"{error}; {_REMEDY}") from None


def _is_ours(path: Path, forbidden: int, party: str) -> bool:
    """Return whether it is there. Raises AuthorityError for a link, another user's, or one that others may use."""
    try:
        status = path.lstat()
    except FileNotFoundError:
        return False
    except OSError as error:
        raise AuthorityError(f"{path} can't be looked at: {error.strerror}; correct XDG_DATA_HOME") from None
    if stat.S_ISLNK(status.st_mode):
        raise AuthorityError(f"{path} is a link; put what it leads to in its place")
    if status.st_uid != os.geteuid():
        raise AuthorityError(f"{path} belongs to user {status.st_uid}; run as that user, or set XDG_DATA_HOME")
    mode = stat.S_IMODE(status.st_mode)
    if mode & forbidden:
        raise AuthorityError(
            f"{path} has mode {mode:o}, so that others may {party}: `chmod {mode & ~forbidden:o} {path}` if nobody"
            f" has, or {_REMEDY}"
        )
    return True


def subject_of_user() -> str:
    """Return a name that tells the authority from others in a list."""
    try:
        user = pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        user = str(os.geteuid())
    return f"local-lb {user}@{os.uname().nodename}"
