"""Remedies for errors of the system: half a sentence for each error that has one."""

from __future__ import annotations

import errno

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
    errno.ENAMETOOLONG: "choose shorter names",
}


def refusal(error: OSError) -> str:
    """Return what the system says, and what to do where that is known."""
    what, remedy = error.strerror or str(error), REMEDIES.get(error.errno or 0)
    return f"{what}; {remedy}" if remedy else what
