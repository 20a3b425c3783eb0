"""Exit codes, the same for every command (docs/commands.md), and failures as one sentence.

Codes of policies have the names of `report.changes.Gate`, in its order. Known errors have the sentence as their own
text; all others are described by their type.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Iterable, Sequence
from enum import IntEnum
from pathlib import Path
from threading import ExceptHookArgs
from typing import TYPE_CHECKING

from locallb.cli.process import DEBUG
from locallb.model.errors import of_host, reported
from locallb.model.texts import printable

if TYPE_CHECKING:
    from locallb.cli.console import Out
    from locallb.report.changes import Violation


class Exit(IntEnum):
    """How a command ended."""

    OK = 0
    FAILED = 1
    USAGE = 2
    CHANGES = 7
    UNSERVED = 8
    TIMEOUT = 9
    ADDRESS_CHANGES = 10
    SOURCE_RANGES = 11
    PORTS = 12
    HEADROOM = 13
    HOSTNAMES = 14
    TLS = 15
    INTERRUPTED = 130


MEANINGS = {
    Exit.OK: "success",
    Exit.FAILED: "something failed; the message says what, and what to do",
    Exit.USAGE: "invalid command line",
    Exit.CHANGES: "--expect-no-changes, and there are changes",
    Exit.UNSERVED: "`up --fail-on`: a Service is in one of these states; everything else was done."
    " `explain`: nothing would serve the request",
    Exit.TIMEOUT: "`wait`: time ran out before everything was as it waits for",
    Exit.ADDRESS_CHANGES: "`preview`, `up`: an address changes, and local-lb:policies forbids it",
    Exit.SOURCE_RANGES: "`preview`, `up`: a port is open to everybody, and local-lb:policies forbids it",
    Exit.PORTS: "`preview`, `up`: a port isn't among those that local-lb:policies allows",
    Exit.HEADROOM: "`preview`, `up`: a pool keeps less room than local-lb:policies asks for",
    Exit.HOSTNAMES: "`preview`, `up`: a hostname isn't among those that local-lb:policies allows",
    Exit.TLS: "`preview`, `up`: requests are taken without TLS, and local-lb:policies forbids it",
    Exit.INTERRUPTED: "interrupted by Ctrl-C, SIGTERM or SIGHUP",
}


_PACKAGE = Path(__file__).resolve().parents[1]
_REPORTED = (
    ("locallb.model.errors", "ClientError"),
    ("locallb.engine.state.errors", "EngineError"),
    ("locallb.config.settings", "SettingsError"),
    ("locallb.sources", "SourceError"),
)
"""Errors that speak for themselves: of modules that aren't loaded nothing can have been raised."""


def refuse(violations: Sequence[Violation], out: Out) -> int:
    """Print what the stack's policies forbid or advise against, and give the exit code."""
    if violations:
        from locallb.report.wording import visible  # noqa: PLC0415 - few stacks have any
    for violation in violations:
        (out.warning if violation.advisory else out.error)(visible(violation.message))
    return gate_code(violations)


def gate_code(violations: Iterable[Violation]) -> int:
    """Return the exit code for what policies forbid: of several the first counts."""
    broken = {violation.gate.name for violation in violations if not violation.advisory}
    return next((code for code in Exit if code.name in broken), Exit.OK)


class Refused(Exception):  # noqa: N818 - an answer of a command, not a mistake
    """A command can't or won't do what was asked: one sentence."""


def sentence(error: BaseException) -> str:
    """Return a failure in a sentence with what to do, where that is known."""
    if _is_reported(error):
        return str(error)
    if terms := of_host(error):
        return terms
    if isinstance(error, OSError):
        return reported(error) if error.strerror else _terms(error)
    cut_short = "marshal data" in str(error)  # compiled code, written when the disk was full
    if isinstance(error, (ImportError, SyntaxError)) or cut_short:  # a parser that lacks memory takes good code for bad
        remedy = "give it more memory, or install local-lb again, in a checkout by `make setup`"
        return f"a library can't be loaded ({_terms(error)}); {remedy}"
    return f"a mistake in local-lb ({_terms(error)}{_place(error)}); please report it, with {DEBUG}=1 it tells more"


def complain(error: BaseException, report_to: Callable[[str], None] | None = None) -> int:
    """Return a failure, on standard error by default; return the exit code."""
    if os.environ.get(DEBUG) and not _is_reported(error):
        traceback.print_exception(error)
    for line in sentence(error).splitlines():
        (report_to or print_error)(line)
    return Exit.FAILED


def print_error(line: str) -> None:
    """Write one complaint, without anything that has to be loaded first."""
    try:
        sys.stderr.write(f"error: {printable(line)}\n")
    except (OSError, ValueError):  # nothing reads it
        return


def in_thread(observed: ExceptHookArgs) -> None:
    """Report a failure that ended a thread, as `threading.excepthook`."""
    if observed.exc_value is not None:
        complain(observed.exc_value)


def _is_reported(error: BaseException) -> bool:
    """Return whether a failure's own text is a sentence for users."""
    loaded = [getattr(sys.modules[module], kind) for module, kind in _REPORTED if module in sys.modules]
    return isinstance(error, (Refused, *loaded))


def _terms(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _place(error: BaseException) -> str:
    """Name the last place in our own code."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        path = Path(frame.filename)
        if path.is_relative_to(_PACKAGE):
            return f", {path.relative_to(_PACKAGE.parent)}:{frame.lineno}"
    return ""
