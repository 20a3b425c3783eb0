"""Files, for the engine and all others: locked, read within bounds, written whole, and the users that may change them.

Errors are the system's (OSError) or one sentence (UnfitError). A bounded read never follows a file that grows, waits
for a pipe or builds a tree of thousands of aliases. An atomic write leaves the former content or the new one, whatever
ends the process. Locks are the kernel's (flock): they end with the process that has them. Not here: what files mean,
and the sentences for users (`storage.files`).
"""

from __future__ import annotations

import errno
import fcntl
import grp
import os
import pwd
import re
import secrets
import stat
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from glob import escape
from pathlib import Path
from typing import BinaryIO, NewType

import yaml
from msgspec import Struct, field

from locallb.model.texts import DEEPEST, MAX_ALIASED
from locallb.patterns import pattern

_KERNELS = Path("/proc/locks")
_FIELDS = 6
_LOCK_MADE = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
_LOCK_PRESENT = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def open_lock(path: Path, *, make: bool = True) -> int:
    """Open the file that is there to be locked, or `make` it, and return its descriptor. Raises OSError."""
    return os.open(path, _LOCK_MADE if make else _LOCK_PRESENT, 0o600)


def try_lock(descriptor: int, *, shared: bool = False) -> bool:
    """Try to lock `descriptor`, exclusively or shared; return False if another process holds it."""
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def wait_for_lock(descriptor: int, *, shared: bool = False) -> None:
    """Lock `descriptor`, exclusively or shared, waiting for other holders. Raises OSError if locking is impossible."""
    fcntl.flock(descriptor, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)


def unlock(descriptor: int) -> None:
    fcntl.flock(descriptor, fcntl.LOCK_UN)


def kernel_locks() -> Iterator[tuple[int, str]]:
    """Return the locks with their holders, by the kernel's public list: pid, and `major:minor:inode`."""
    for terms in map(str.split, _KERNELS.read_text(encoding="ascii").splitlines()):
        if len(terms) >= _FIELDS and terms[1] == "FLOCK":
            yield int(terms[4]), terms[5]


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


ENDING = ".new"
_STALE = 60.0
"""Seconds after which a link or a directory that is being put in place is one that a stopped writer left."""
_NAME = pattern(r"\.(?P<name>.+)\.[0-9a-f]{8}" + re.escape(ENDING))
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_OLD = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


def temporary_name(path: Path) -> Path:
    """Return the name of a new file next to `path`."""
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}{ENDING}")


def is_temporary_name(name: str) -> bool:
    """Return whether a file is called as one that isn't complete."""
    return _NAME.fullmatch(name) is not None


@contextmanager
def written(temporary: Path, data: bytes, mode: int, *, durable: bool = False) -> Iterator[Path]:
    """Write a new file, which counts as being written meanwhile; `durable`: it survives a power cut.

    Raises OSError; then it isn't left.
    """
    with new_file(temporary, mode) as descriptor:
        try:
            os.fchmod(descriptor, mode)  # whatever the umask takes away
            write_all(descriptor, data)
            if durable:
                os.fsync(descriptor)
            os.close(os.dup(descriptor))  # there are file systems that report a full disk as late as then
        except OSError:
            discard(temporary)
            raise
        yield temporary


def write_all(descriptor: int, data: bytes) -> None:
    """Write until everything is taken: one call takes at most 2 GiB, and less where a disk is full. Raises OSError."""
    rest = memoryview(data)
    while rest:
        claimed = os.write(descriptor, rest)
        if not claimed:  # as file systems outside of the kernel may answer
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        rest = rest[claimed:]


def sync_folder(path: Path) -> None:
    """Let what was renamed in a directory survive a power cut. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def new_file(path: Path, mode: int) -> Iterator[int]:
    """Make a file; it counts as being written meanwhile. Raises OSError."""
    descriptor = _opened_new(path, mode)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _opened_new(path: Path, mode: int) -> int:
    while True:
        descriptor = os.open(path, _NEW, mode)
        with suppress(OSError):  # there are file systems without locks
            wait_for_lock(descriptor)
        if os.fstat(descriptor).st_nlink:
            return descriptor
        os.close(descriptor)  # it was taken for a dead writer's before it was locked


def put_link(path: Path, to: str) -> None:
    """Put a link in place of what stands there, in one step. Raises OSError; then that still stands there."""
    sibling = temporary_name(path)
    sibling.symlink_to(to)
    try:
        sibling.replace(path)
    except OSError:
        discard(sibling)
        raise


def discard(path: Path) -> None:
    """Remove an incomplete file; an error of the removal is suppressed, so that it doesn't hide the first one."""
    with suppress(OSError):
        path.unlink(missing_ok=True)


def remove_abandoned(directory: Path) -> None:
    """Remove what dead writers left in a directory, and in those directly in it; what can't be removed stays.

    Not for a directory in which others may write.
    """
    for path in (*directory.glob(f".*{ENDING}"), *directory.glob(f"*/.*{ENDING}")):
        if is_temporary_name(path.name) and not path.parent.is_symlink():
            with suppress(OSError):
                _remove(path)


def remove_abandoned_of(path: Path) -> None:
    """Remove a file's temporary files of dead writers; what can't be removed stays."""
    for sibling in path.parent.glob(f".{escape(path.name)}.*{ENDING}"):
        match = _NAME.fullmatch(sibling.name)
        if match and match["name"] == path.name:
            with suppress(OSError):
                _remove(sibling)


def is_stale(path: Path) -> bool:
    """Return whether a link or a directory that is to come to its place has lain there for long. Raises OSError."""
    return time.time() - path.lstat().st_mtime > _STALE


def _remove(path: Path) -> None:
    if path.is_symlink():  # nobody can lock one
        if is_stale(path):
            path.unlink()
        return
    descriptor = os.open(path, _OLD)
    try:
        if stat.S_ISREG(os.fstat(descriptor).st_mode) and try_lock(descriptor):
            path.unlink()
    finally:
        os.close(descriptor)
