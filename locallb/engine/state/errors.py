"""The engine's errors: one sentence each, naming the object, the value and the way out.

The command line prints `str(error)` as it is. Nothing here knows what the resources are about.
"""

import errno
from pathlib import Path

from locallb.guarded.reader import UnfitError

_REMEDIES = {
    errno.ENOSPC: "make room on that disk",
    errno.EDQUOT: "make room within your quota",
    errno.EROFS: "mount it writable",
    errno.EACCES: "give this user the right to do so",
    errno.EPERM: "give this user the right to do so",
    errno.EFBIG: "raise the limit of file sizes (`ulimit -f`)",
    errno.EMFILE: "raise the limit of open files (`ulimit -n`)",
    errno.ENFILE: "end other programs that have many files open",
    errno.ENOMEM: "end other programs, or raise the limit of memory (`ulimit -v`)",
    errno.EAGAIN: "raise the limit of processes (`ulimit -u`), or end others",
    errno.EIO: "look after that disk",
}
_IN_THE_WAY = {
    errno.EISDIR: "move that directory elsewhere",
    errno.ENOTDIR: "move the file elsewhere that is in place of a directory on the way there",
    errno.EEXIST: "move what stands there elsewhere",
    errno.ENOTEMPTY: "move that directory elsewhere",
    errno.ELOOP: "remove the link that leads in a circle",
    errno.ENAMETOOLONG: "choose shorter names",
}
"""What keeps a file from being written, and nothing else."""


class EngineError(Exception):
    """Something the engine can't or won't do, told in one sentence."""


class ProjectError(EngineError):
    """`Pulumi.yaml` or the stack's configuration can't be used."""


class StateBroken(EngineError):  # noqa: N818 the name says what happened
    """The state file can't be trusted: cut short, edited by hand, of another format."""


class StateUnusable(StateBroken):
    """The stack's state or journal isn't what any engine writes: one wording, one way out."""

    def __init__(self, path: Path, why: str) -> None:
        way_out = "run `locallb state restore` to go back to the last good state"
        super().__init__(f"{path} can't be used: {why}; {way_out}")


def unreadable(path: Path, error: OSError) -> StateBroken:
    """Make the error of a stack's state or journal that the system doesn't let us read."""
    if is_of_host(error):  # the state may be as good as ever
        return StateUnreadable(f"{path} can't be read: {refusal(error)}, then run again")
    return StateUnusable(path, refusal(error))


def parsing_problem(error: Exception) -> str:
    """Return why a text can't be parsed; how deep Python recurses is nobody's business."""
    return "it is nested too deeply" if isinstance(error, RecursionError) else str(error)


def is_of_host(error: OSError) -> bool:
    """Return whether it is known what of the host is in the way, and nothing is wrong with what was asked for."""
    return error.errno in _REMEDIES


def refusal(error: OSError) -> str:
    """Return what the system refuses, and what to do where that is known."""
    what, remedy = _words(error), _REMEDIES.get(error.errno or 0)
    return f"{what}; {remedy}" if remedy else what


def _words(error: OSError) -> str:
    return error.strerror or str(error) or type(error).__name__


class HostRefused(EngineError):  # noqa: N818 the name says what happened
    """The system refuses what every run needs: descriptors, threads."""

    def __init__(self, error: OSError) -> None:
        where = f"{error.filename}: " if error.filename else ""
        super().__init__(f"{where}{refusal(error)}")


class StateUnreadable(StateBroken):
    """The host keeps us from reading the state, its journal or a backup, of which nothing is known then."""


class StateUnwritable(EngineError):  # noqa: N818 the name says what happened
    """The state, its lock or its journal can't be written (read-only or full disk)."""


def unwritable(path: Path, error: OSError) -> StateUnwritable:
    """Make the error of a file of a stack that can't be written."""
    if isinstance(error, UnfitError):
        what = f"{_words(error)}; move it elsewhere, then run again"
    elif remedy := _IN_THE_WAY.get(error.errno or 0):
        other = str(error.filename2 or error.filename or path)
        where = "" if other == str(path) else f"{other}: "
        what = f"{where}{_words(error)}; {remedy}, then run again"
    elif is_of_host(error):
        what = f"{refusal(error)}, then run again"
    else:
        what = f"{_words(error)}; run again once that is repaired"
    return StateUnwritable(f"{path} can't be written: {what}")


class LockHeld(EngineError):  # noqa: N818 the name says what happened
    """Another update of the same stack is running, or its lock was left on another host."""


class Unsupported(EngineError):  # noqa: N818 the name says what happened
    """A feature of Pulumi that this engine leaves to the official command line."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what} isn't supported by the embedded engine; use `pulumi up`")


class FullScopeNeeded(EngineError):  # noqa: N818 the name says what happened
    """A scoped update met a change that concerns everything, such as another provider configuration."""


class Cancelled(EngineError):  # noqa: N818 the name says what happened
    """The update was interrupted: what ran was finished, nothing new was started."""

    def __init__(self) -> None:
        super().__init__("the update was interrupted; run it again to finish")


class StepError(EngineError):
    """One resource's operation failed; the others go on."""


class UpdateUnfinished(EngineError):  # noqa: N818 the name says what happened
    """Another engine runs the program, and an update of this one broke off."""
