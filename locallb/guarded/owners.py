"""Whether only trusted users control the target of a path, as sshd (StrictModes) and Git (safe.directory) require.

Trusted are root, the user that runs this, and under sudo the user that called it. Each directory and link of the path
is checked, from `/` on. Once all of them are fixed, no other user can replace anything between this check and its use.
"""

from __future__ import annotations

import grp
import os
import pwd
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NewType

from msgspec import Struct

UserId = NewType("UserId", int)
ROOT = UserId(0)
_LINKS = 40
"""Links on one path, as the kernel has it."""
_ACL = "system.posix_acl_access"
_ACCEPTED: set[Path] = set()


class Distrust(Struct, frozen=True):
    """Why a path isn't trusted: another user owns a part of it, or may write to it."""

    path: Path
    """The part of it."""
    owner: UserId
    mode: int = 0
    """The part's mode where that is the reason; 0 where its owner is."""

    def __str__(self) -> str:
        if self.mode:
            return f"other users may write to {self.path} (mode {self.mode:o})"
        return f"{self.path} belongs to {shown(self.owner)}"

    @property
    def remedy(self) -> str:
        """What its owner can do about it."""
        return f"`chmod go-w {self.path}`" if self.mode else ""


def trusted_users() -> frozenset[UserId]:
    """Return root, the user who runs this, and the user who called sudo."""
    users = {ROOT, UserId(os.geteuid())}
    if (caller := sudo_user()) is not None:
        users.add(caller)
    return frozenset(users)


def sudo_user() -> UserId | None:
    """Return the user who called sudo; None without sudo."""
    caller = os.environ.get("SUDO_UID", "")
    return UserId(int(caller)) if os.geteuid() == 0 and caller.isascii() and caller.isdecimal() else None


def another_owner(paths: Iterable[Path]) -> UserId | None:
    """Return the owner of the first of these paths that belongs to none of the trusted users; None if all do.

    Raises OSError.
    """
    users = trusted_users()
    return next((owner for path in paths if (owner := UserId(path.lstat().st_uid)) not in users), None)


def shown(user: UserId) -> str:
    """Return a user as sentences have it."""
    return f"user {name(user)} ({user})" if name(user) else f"user {user}"


def name(user: UserId) -> str:
    """Return a user's name; empty for one without an entry."""
    with suppress(KeyError, OverflowError):
        return pwd.getpwuid(user).pw_name
    return ""


def accept(directory: Path) -> None:
    """Trust everything below `directory` in this process: its caller named it on purpose."""
    _ACCEPTED.add(directory.resolve())


def distrust(path: Path, base: Path, users: frozenset[UserId] | None = None) -> Distrust | None:
    """Return why `path` isn't trusted, rather an owner than a mode; None where it is, or doesn't exist.

    Above `base` a sticky directory such as /tmp may be writable by others: they can't replace an entry that isn't
    theirs. `base` and what is below it may not: an added file would be read or run as well. Trusted are `users`.

    Raises OSError where it can't be determined.
    """
    if any(path.is_relative_to(accepted) for accepted in _ACCEPTED):
        return None
    users, inside = trusted_users() if users is None else users, base.resolve()
    parts = dict.fromkeys(part for target in (base, path) for part in _parts(target))
    faults = filter(None, (_fault(part, users, strict=part.is_relative_to(inside)) for part in parts))
    return min(faults, key=lambda fault: bool(fault.mode), default=None)


def _parts(path: Path) -> Iterator[Path]:
    """Yield every directory and link that decides what `path` is, in the order in which the kernel passes them."""
    todo, current, links = [*reversed((Path.cwd() / path).parts)], Path("/"), 0
    while todo:
        name = todo.pop()
        if name == "..":
            current = current.parent
            continue
        current = Path(name) if name == "/" else current / name
        try:
            is_link = stat.S_ISLNK(current.lstat().st_mode)
        except (FileNotFoundError, NotADirectoryError):
            return
        yield current
        if is_link:
            links += 1
            if links > _LINKS:
                return  # leads nowhere
            todo.extend(reversed(current.readlink().parts))
            current = current.parent


def _fault(part: Path, users: frozenset[UserId], *, strict: bool) -> Distrust | None:
    try:
        status = part.lstat()
    except FileNotFoundError:
        return None
    owner, is_directory = UserId(status.st_uid), stat.S_ISDIR(status.st_mode)
    # The owner of `/` decides everything; in a user namespace that is how the host's root looks.
    if owner not in users and (strict or not is_directory or owner != Path("/").stat().st_uid):
        return Distrust(part, owner)
    mode = stat.S_IMODE(status.st_mode)
    protected = is_directory and mode & stat.S_ISVTX and not strict
    is_read = is_directory or stat.S_ISREG(status.st_mode)  # nothing else is
    if not is_read or protected or not _is_writable(part, mode, status.st_gid, users):
        return None
    return Distrust(part, owner, mode)


def _is_writable(part: Path, mode: int, group: int, users: frozenset[UserId]) -> bool:
    """Return whether users who aren't trusted may write there."""
    if not mode & (stat.S_IWGRP | stat.S_IWOTH) or os.statvfs(part).f_flag & os.ST_RDONLY:
        return False
    return bool(mode & stat.S_IWOTH) or _has_acl(part) or not _is_private(group, users)


def _has_acl(part: Path) -> bool:
    """Return whether the mode's group bits stand for other users, too."""
    with suppress(OSError, AttributeError):  # macOS has no such call
        return bool(os.getxattr(part, _ACL))
    return False


def _is_private(group: int, users: frozenset[UserId]) -> bool:
    """Return whether a group is a trusted user's own, as distributions make one per user, and has no other member."""
    names = {name(user) for user in users}
    try:
        entry = grp.getgrgid(group)
    except (KeyError, OverflowError):
        return group in users  # as in a container without a table of groups
    others = (one.pw_name for one in pwd.getpwall() if one.pw_gid == group and one.pw_uid not in users)
    return entry.gr_name in names and {*entry.gr_mem} <= names and not any(others)
