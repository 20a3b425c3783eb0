"""`ClientError`, the base class of all errors of the outside world, and remedies for errors of the system. Pure.

The text of a `ClientError` is one sentence for the user; a remedy is the half sentence after it.
"""

from __future__ import annotations

import errno
from collections.abc import Callable


class ClientError(Exception):
    """The world can't be read or changed as asked: one sentence. Each module of this package has its own kind."""


REMEDIES = {
    errno.ENOSPC: "make room on that disk",
    errno.EDQUOT: "make room within your quota",
    errno.EROFS: "mount it writable, or use a project elsewhere",
    errno.EACCES: "run this as the user whose files these are, or set the rights",
    errno.EPERM: "run this as the user whose files these are, or set the rights",
    errno.EMFILE: "raise the limit of open files (`ulimit -n`)",
    errno.ENFILE: "end other programs that have many files open",
    errno.EFBIG: "raise the limit of file sizes (`ulimit -f`)",
    errno.EAGAIN: "raise the limit of processes (`ulimit -u`), or end others",
    errno.ENOMEM: "end other programs, or raise the limit of memory (`ulimit -v`)",
    errno.EIO: "look after that disk",
    errno.ESTALE: "mount that file system again",
    errno.ENAMETOOLONG: "choose shorter names",
}
OBSTACLES = {
    errno.EISDIR: "move that directory elsewhere",
    errno.ENOTDIR: "move the file elsewhere that is in place of a directory on the way there",
    errno.EEXIST: "move what stands there elsewhere",
    errno.ENOTEMPTY: "move that directory elsewhere",
    errno.ELOOP: "remove the link that leads in a circle",
}
"""What keeps a file from being written, and nothing else."""
SCARCE = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})
"""The host has run out of a resource just now: the result is unknown, and must not count as absent."""
FAILING = frozenset({errno.EIO, errno.ESTALE})
"""The disk or its server fails: this one file is unreadable, others may be readable."""
UNTOLD = SCARCE | FAILING
"""Either."""

_STATED = {
    "Too many open files in system": errno.ENFILE,
    "Too many open files": errno.EMFILE,
    "Cannot allocate memory": errno.ENOMEM,
}
"""Texts of the C library, for errors of libraries that pass on only the text."""


def refusal(error: OSError) -> str:
    """Return the system's message, with a known remedy."""
    what, remedy = words_of(error), REMEDIES.get(error.errno or 0)
    return f"{what}; {remedy}" if remedy else what


def words_of(error: OSError) -> str:
    """Return what the system says."""
    return error.strerror or str(error) or type(error).__name__


def obstacle(error: OSError) -> str:
    """Return what to do about whatever keeps a file from being written, where that is known."""
    return OBSTACLES.get(error.errno or 0, "")


def has_remedy(error: BaseException | None) -> bool:
    """Return whether `refusal` says what to do."""
    return isinstance(error, OSError) and error.errno in REMEDIES


def reason(error: Exception) -> str:
    """Return the message of a system error with its remedy, or of any other error."""
    return refusal(error) if isinstance(error, OSError) else str(error)


def reported(error: OSError) -> str:
    """Return the system's message, with the file of the error, if any."""
    return f"{error.filename}: {refusal(error)}" if error.filename else refusal(error)


def refuse_scarcity(error: OSError, what: str, kind: Callable[[str], Exception]) -> None:
    """Raise an error of `kind` if the host lacks the resources to read: the object may exist."""
    if error.errno in SCARCE:
        raise kind(f"{what}: {reported(error)}") from error


def scarcity(error: BaseException) -> str:
    """Return the exhausted resource of the host, and the remedy; empty if the error has another cause."""
    text = str(error)
    return next((f"{terms}; {REMEDIES[number]}" for terms, number in _STATED.items() if terms in text), "")


def of_host(error: BaseException) -> str:
    """Return the sentence of an error of the host, which no input caused; empty for any other."""
    if isinstance(error, OSError) and error.errno in REMEDIES:
        return reported(error)
    text = str(error.args[0]) if error.args and isinstance(error.args[0], str) else ""
    if isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and "start new thread" in text):
        terms = f"{type(error).__name__}: {text}".strip(": ")
        return f"this host gives no more memory or threads ({terms}); {REMEDIES[errno.ENOMEM]}"
    return ""
