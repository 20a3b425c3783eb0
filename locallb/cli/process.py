"""This process: its signals, standard streams and uncaught exceptions.

It is imported before anything else and imports next to nothing: a signal may come while the rest is still loaded.
"""

from __future__ import annotations

import atexit
import gc
import os
import select
import signal
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType, TracebackType
    from typing import Literal, NoReturn, TextIO

INTERRUPTED = 130
DEBUG = "LOCALLB_DEBUG"
"""A variable; where it is set, what is a mistake of ours is shown with its traceback."""
_SELDOM = 20_000
"""Objects that come before the garbage collector looks at what is new: nearly all that a command loads stays."""
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_OUTPUT, _ERRORS = 1, 2
_CURSOR_BACK = b"\x1b[?25h"
"""Shows the cursor, which progress on a terminal hides; written directly, because who draws may be held up."""
_SENTENCE = b"error: interrupted; run the command again to finish\n"


def prepare() -> None:
    """Make this process fit for a command: to call first of all, on the main thread."""
    _open_standard_streams()
    gc.set_threshold(_SELDOM)
    for number in _ENDING:
        if signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup, or in the background of a script
            signal.signal(number, leave)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDING)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # a process that inherits an ignored SIGCHLD never gets exit codes
    sys.excepthook = _uncaught
    sys.unraisablehook = _unraisable


def leave(_number: int, _frame: FrameType | None) -> None:
    """End this process at once: no command leaves anything half-done that the next run doesn't finish.

    Not by an exception, which the code that runs at that moment might catch or print.
    """
    _write(_ERRORS, _SENTENCE)
    _end(INTERRUPTED)


def exit_cleanly_when_interrupted(first: Callable[[], object] = int) -> None:
    """Treat a signal from now on as the expected end of a command that only reads until it is stopped.

    `first` is what is done before, quickly and without raising anything.
    """
    for number in _ENDING:
        if callable(signal.getsignal(number)):
            signal.signal(number, lambda _number, _frame: (first(), _end(0)))


def finish(code: int) -> NoReturn:
    """Write out what the streams still hold, and end this process; with another code if results could not be written.

    A signal that comes from then on comes too late: the code says how the command ended. What is registered to run at
    exit is run (the SDK sends what it traced, a program of one's own may have something); but the interpreter isn't
    taken down, which would free each object by itself.
    """
    code = _written_out(code)
    for number in _ENDING:
        signal.signal(number, signal.SIG_IGN)
    atexit._run_exitfuncs()  # noqa: SLF001 - as the interpreter does at its end
    os._exit(_written_out(code))


def _written_out(code: int) -> int:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError) as error:
            _discard(stream)
            if not isinstance(error, BrokenPipeError):
                _write(_ERRORS, f"error: the output can't be written: {error}\n".encode(errors="replace"))
                code = code or 1
    return code


def _open_standard_streams() -> None:
    """Open closed standard streams, so that no file of ours gets their number, and let each write any text."""
    for number in (0, _OUTPUT, _ERRORS):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free: this one
    sys.stdin = _usable(sys.stdin, "r")
    sys.stdout = _usable(sys.stdout, "w")
    sys.stderr = _usable(sys.stderr, "w")


def _usable(stream: TextIO | None, mode: Literal["r", "w"]) -> TextIO:
    if stream is None:  # closed by our parent process
        return open(os.devnull, mode, encoding="utf-8")  # noqa: PTH123 - for good
    if reconfigure := getattr(stream, "reconfigure", None):
        reconfigure(errors="replace" if mode == "r" else "backslashreplace")
    return stream


def _discard(stream: TextIO) -> None:
    """Discard what `stream` still holds: the interpreter would complain of it at its end."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, _OUTPUT if stream is sys.stdout else _ERRORS)
    os.close(nowhere)


def _write(descriptor: int, text: bytes) -> None:
    """Write a little, unless that would wait."""
    try:
        if select.select([], [descriptor], [], 0)[1]:
            os.write(descriptor, text)
    except (OSError, ValueError):
        return


def _end(code: int) -> NoReturn:
    if os.isatty(_OUTPUT):
        _write(_OUTPUT, _CURSOR_BACK)
    os._exit(code)


def _uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Report what ended the interpreter, should anything get that far."""
    if os.environ.get(DEBUG):
        sys.__excepthook__(kind, error, trace)
    elif not isinstance(error, KeyboardInterrupt):
        _write(_ERRORS, f"error: {kind.__name__}: {error}\n".encode(errors="replace"))


def _unraisable(report: sys.UnraisableHookArgs) -> None:
    """Ignore failures during cleanup, which no caller can handle."""
    if os.environ.get(DEBUG):
        sys.__unraisablehook__(report)
