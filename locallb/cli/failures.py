"""What failed, in one sentence: known failures speak for themselves, others are told by what they are."""

from __future__ import annotations

import errno
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from threading import ExceptHookArgs

from locallb.cli.exit_code import Exit
from locallb.cli.process import DEBUG
from locallb.model.formatting import printable

_PACKAGE = Path(__file__).resolve().parents[1]
_TOLD = (
    ("locallb.model.errors", "ClientError"),
    ("locallb.engine.state.errors", "EngineError"),
    ("locallb.config.settings", "SettingsError"),
    ("locallb.sources", "SourceError"),
)
"""Errors that speak for themselves: of modules that aren't loaded nothing can have been raised."""
_REMEDIES = {
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


class Refused(Exception):  # noqa: N818 - an answer of a command, not a mistake
    """A command can't or won't do what was asked: one sentence."""


def sentence(error: BaseException) -> str:
    """Return a failure in a sentence with what to do, where that is known."""
    if _is_told(error):
        return str(error)
    if isinstance(error, OSError):
        return _of_the_system(error)
    if isinstance(error, MemoryError) or "start new thread" in str(error):
        return f"this host gives no more memory or threads ({_words(error)}); {_REMEDIES[errno.ENOMEM]}"
    if isinstance(error, ImportError):
        return f"a library can't be loaded ({_words(error)}); `make setup` installs what is missing"
    return f"a mistake in local-lb ({_words(error)}{_place(error)}); please report it, with {DEBUG}=1 it tells more"


def complain(error: BaseException, tell: Callable[[str], None] | None = None) -> int:
    """Return a failure, on standard error by default; return the exit code."""
    if os.environ.get(DEBUG) and not _is_told(error):
        traceback.print_exception(error)
    for line in sentence(error).splitlines():
        (tell or print_error)(line)
    return Exit.FAILED


def print_error(line: str) -> None:
    """Write one complaint, without anything that has to be loaded first."""
    try:
        sys.stderr.write(f"error: {printable(line)}\n")
    except (OSError, ValueError):  # nobody listens
        return


def in_thread(seen: ExceptHookArgs) -> None:
    """Report a failure that a thread died of: what `threading.excepthook` is told."""
    if seen.exc_value is not None:
        complain(seen.exc_value)


def _is_told(error: BaseException) -> bool:
    """Return whether a failure's own text is a sentence for users."""
    loaded = [getattr(sys.modules[module], kind) for module, kind in _TOLD if module in sys.modules]
    return isinstance(error, (Refused, *loaded))


def _of_the_system(error: OSError) -> str:
    what = error.strerror or _words(error)
    where = f"{error.filename}: " if error.filename else ""
    remedy = _REMEDIES.get(error.errno or 0)
    return f"{where}{what}; {remedy}" if remedy else f"{where}{what}"


def _words(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _place(error: BaseException) -> str:
    """Name the last place in our own code."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        path = Path(frame.filename)
        if path.is_relative_to(_PACKAGE):
            return f", {path.relative_to(_PACKAGE.parent)}:{frame.lineno}"
    return ""
