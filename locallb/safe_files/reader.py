"""Reads files that other users may control: checks of trust, bounded regular files, and bounded YAML.

Not here: manifests and kubeconfigs, which are built from the parser's events (`kubernetes.documents`).
"""

from __future__ import annotations

import errno
import grp
import os
import pwd
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, NewType

import yaml
from msgspec import Struct, field

from locallb.model.texts import DEEPEST, MAX_ALIASED

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

    Only trusted users may control the target of the path, as sshd (StrictModes) and Git (safe.directory) require: root,
    the user that runs this, and under sudo the user that called it, unless `users` names others. Each directory and
    link of the path is checked, from `/` on. Once all of them are fixed, no other user can replace anything between
    this check and its use.

    Above `base` a sticky directory such as /tmp may be writable by others: they can't replace an entry that isn't
    theirs. `base` and what is below it may not: an added file would be read or run as well. Raises OSError where it
    can't be determined.
    """
    if any(path.is_relative_to(accepted) for accepted in _ACCEPTED):
        return None
    users, inside = trusted_users() if users is None else users, base.resolve()
    parts = dict.fromkeys(part for target in (base, path) for part in _parts(target))
    faults = filter(None, (_owner_fault(part, users, strict=part.is_relative_to(inside)) for part in parts))
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


def _owner_fault(part: Path, users: frozenset[UserId], *, strict: bool) -> Distrust | None:
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


_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
"""A pipe must not keep us waiting."""
STATE = 512 << 20
"""Bytes of the largest file that is read: a stack's state, or its journal."""
_PART = 1 << 16
"""Bytes that are read at a time of a file that grows."""


def expanded(given: str) -> Path:
    """Return the path that a user wrote, `~` put in full; as it stands where there is no such home."""
    try:
        return Path(given).expanduser()
    except RuntimeError:
        return Path(given)


class UnfitError(OSError):
    """There is something that isn't a regular file of a bounded size; its text is the reason."""


def unfit(path: Path, why: str = "it is no regular file") -> UnfitError:
    """Make the error of what is no such file."""
    return UnfitError(0, why, str(path))


@contextmanager
def opened(path: Path, *, follow: bool = True) -> Iterator[BinaryIO]:
    """Open a regular file to be read, and close it at the end. Raises OSError with a printable reason.

    This is the one way to open a file of unknown type, without ever waiting. A pipe, a device, a socket or a directory
    under the name is refused with a reason. Links are followed, because users have them, unless the caller disables
    that. The file's owner is not checked.
    """
    try:
        descriptor = os.open(path, _FLAGS if follow else _FLAGS | os.O_NOFOLLOW)
    except OSError as error:
        if error.errno == errno.ENXIO:  # a socket
            raise unfit(path) from None
        if error.errno == errno.ELOOP and follow:
            raise unfit(path, os.strerror(errno.ELOOP)) from None
        raise
    try:
        _require_file(path, os.fstat(descriptor))
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            yield file
    finally:
        os.close(descriptor)


def open_to_write(path: Path, flags: int, mode: int = 0o600) -> int:
    """Open a regular file of ours to be written, made or emptied as `flags` have it. Raises OSError.

    Neither is a link followed, which would change another file, nor a pipe's reader waited for.
    """
    try:
        descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC, mode)
    except OSError as error:
        if error.errno in {errno.ENXIO, errno.ELOOP}:
            raise unfit(path, "it is a link" if error.errno == errno.ELOOP else "it is no regular file") from None
        raise
    try:
        _require_file(path, os.fstat(descriptor))
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def read_up_to(descriptor: int, maximum: int) -> bytes:
    """Read a regular file, at most so many bytes. Raises OSError.

    Room is made for what it has and not for all that it may have: for many small files that costs more than reading
    them, and leaves holes in this process's memory.
    """
    parts: list[bytes] = []
    expected, remaining = os.fstat(descriptor).st_size + 1, maximum
    while remaining > 0 and (part := os.read(descriptor, min(expected, remaining))):
        parts.append(part)
        expected, remaining = _PART, remaining - len(part)
    return b"".join(parts)


def read(path: Path, maximum: int) -> bytes:
    """Read a regular file of at most `maximum` bytes. Raises OSError with a printable reason."""
    with opened(path) as file:
        require_regular(path, os.fstat(file.fileno()), maximum)
        data = read_up_to(file.fileno(), maximum + 1)
    if len(data) > maximum:
        raise unfit(path, _too_large(maximum))
    return data


def read_if_present(path: Path, maximum: int) -> bytes | None:
    """Read the same; None where nothing has the name. A link that leads nowhere isn't nothing. Raises OSError."""
    try:
        return read(path, maximum)
    except FileNotFoundError:
        if path.is_symlink():
            raise unfit(path, "it is a link that leads nowhere") from None
        return None


def require_regular(path: Path, status: os.stat_result, maximum: int) -> None:
    """Refuse anything but a regular file, and a larger one. Raises OSError with a printable reason."""
    _require_file(path, status)
    if status.st_size > maximum:
        raise unfit(path, _too_large(maximum))


def _require_file(path: Path, status: os.stat_result) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(status.st_mode):
        raise unfit(path)


def _too_large(maximum: int) -> str:
    return f"it has more than {maximum} bytes"


def load_yaml(text: str | bytes, loader: type[yaml.CSafeLoader]) -> object:
    """Read one document.

    Nesting without end would end the parser, with its process, and aliases can stand for texts that fill the memory. So
    both are counted first, by the parser's events, which need no stack and no memory.

    Raises:
        ValueError: if it is nested too deeply, its aliases stand for too much, or it has an odd value.
        yaml.YAMLError: if it is no YAML.
    """
    _require_bounded(yaml.parse(text, Loader=yaml.CSafeLoader), len(text))
    return yaml.load(text, loader)  # noqa: S506 - safe loaders only


class _Open(Struct):
    """An object or a list of which the end hasn't come."""

    anchor: str | None
    before: int
    """Characters that came before it."""


class _Measure(Struct):
    """What was read so far of a text, in characters, with what its aliases stand for."""

    whole: int
    """What an alias stands for at most that is inside of what it names, as the end of that hasn't come."""
    size: int = 0
    aliased: int = 0
    opened: list[_Open] = field(default_factory=list)
    anchors: dict[str | None, int] = field(default_factory=dict)


def _require_bounded(events: Iterable[yaml.Event], whole: int) -> None:
    measure = _Measure(whole)
    for event in events:
        if fault := _fault(event, measure):
            line = event.start_mark.line + 1 if event.start_mark else 0
            raise ValueError(f"line {line}: {fault}")


def _fault(event: yaml.Event, measure: _Measure) -> str:
    """Take the next event, and return why the text isn't read; empty where it may be."""
    match event:
        case yaml.CollectionStartEvent():
            measure.opened.append(_Open(event.anchor, measure.size))
            measure.anchors[event.anchor] = measure.whole
            measure.size += 1
        case yaml.CollectionEndEvent():
            ended = measure.opened.pop()
            measure.anchors[ended.anchor] = measure.size - ended.before
        case yaml.ScalarEvent():
            measure.anchors[event.anchor] = 1 + len(event.value)
            measure.size += 1 + len(event.value)
        case yaml.AliasEvent():
            stands_for = measure.anchors.get(event.anchor, 0)
            measure.size += stands_for
            measure.aliased += stands_for
    if len(measure.opened) > DEEPEST:
        return f"it is nested deeper than {DEEPEST}"
    return f"its aliases stand for more than {MAX_ALIASED} characters" if measure.aliased > MAX_ALIASED else ""
