"""Runs a program of this host to its end: with a deadline, without input, with a bounded output.

It gets a list of words and no shell, no terminal, no standard input but what is given, a deadline at which its whole
process group ends, and a bound to what it may print. Not here: what is run, and processes that outlive us.
"""

from __future__ import annotations

import os
import selectors
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO

from msgspec import Struct

from locallb.model.errors import ClientError
from locallb.model.formatting import clipped, printable
from locallb.model.system_errors import refusal

ADMINISTRATION = ("/usr/sbin", "/sbin")
"""Directories of tools that a user's PATH may not name, though the user may run them."""
MAX = 2**26
"""Bytes that a program may print where nothing else is said."""
_COMPLAINTS = 2**16
"""Bytes of what it complains that are kept: the last."""
_TERMS = 300
"""Maximum characters of its last output in messages."""
_PART = 2**16
_PAUSE = 0.005
_BURIAL = 1.0
"""Seconds for one that was ended to be gone; another user's can't be ended."""


class ProgramError(ClientError):
    """A program can't be run, takes too long, prints too much or fails: one sentence."""

    def __init__(self, name: str, why: str, remedy: str = "") -> None:
        super().__init__("; ".join(filter(None, (f"{clipped(name)} {why}", remedy))))
        self.why = why
        """The sentence without its subject and its remedy."""


class Ended(Struct, frozen=True):
    """A program that ended by itself."""

    code: int
    """As the kernel tells it: negative is a signal."""
    output: bytes
    complaints: bytes

    @property
    def last_output(self) -> str:
        """The last line that it complained of, or else printed; empty if it said nothing."""
        lines = (self.complaints.strip() or self.output.strip()).decode(errors="replace").splitlines()
        return printable(lines[-1].strip()[-_TERMS:]) if lines else ""


class Program(Struct, frozen=True):
    """A program, and what it may do."""

    terms: tuple[str, ...]
    """Its name, looked for in PATH, or its path; then its arguments."""
    seconds: float
    """How long it may take."""
    remedy: str = ""
    """What to do where it fails."""
    maximum: int = MAX
    """Bytes that it may print."""
    directory: Path | None = None
    environment: Mapping[str, str] | None = None
    """None: ours."""
    given: bytes = b""
    """What it reads as its standard input."""
    heard: bool = True
    """Whether its complaints are kept; if not, what it leaves running may go on writing there."""

    def run(self) -> Ended:
        """Run it, whatever its exit code. Raises ProgramError."""
        try:
            return self._run(time.monotonic() + self.seconds)
        except OSError as error:
            raise ProgramError(self.terms[0], f"can't be run ({refusal(error)})") from error

    def _run(self, ends: float) -> Ended:
        with self._standard_input() as given, ExitStack() as stack:
            process = self._started(given, stack)
            try:
                output, complaints = self._read(process, ends)
                return Ended(process.wait(max(0.0, ends - time.monotonic())), output, complaints)
            except subprocess.TimeoutExpired:
                raise self._late() from None
            finally:
                _end(process)

    def output(self) -> str:
        """Run it and return what it prints. Raises ProgramError, also with what it says when it fails."""
        ended = self.run()
        if ended.code:
            stated = ended.last_output.removeprefix(f"{self.terms[0]}: ")
            why = f'says "{stated}"' if stated else f"ended with {ended.code}"
            raise ProgramError(self.terms[0], why, self.remedy)
        return ended.output.decode(errors="replace")

    @contextmanager
    def _standard_input(self) -> Iterator[IO[bytes] | int]:
        """Write what it reads to a file, where it can be read at any pace."""
        if not self.given:
            yield subprocess.DEVNULL
            return
        try:
            file = _file_of(self.given)
        except OSError as error:
            where = f" in {tempfile.tempdir}" if tempfile.tempdir else ""
            why = f"can't be given its input by a file{where} ({refusal(error)})"
            raise ProgramError(self.terms[0], why) from None
        with file:
            yield file

    def _started(self, given: IO[bytes] | int, stack: ExitStack) -> subprocess.Popen[bytes]:
        path = find(self.terms[0], self.environment)
        if not path:
            raise ProgramError(self.terms[0], "isn't installed", "install it, or name its directory in PATH")
        errors = subprocess.PIPE if self.heard else subprocess.DEVNULL
        process = _popen(
            (path, *self.terms[1:]), self.directory, self.environment, (given, subprocess.PIPE, errors), self.terms[0]
        )
        for pipe in filter(None, (process.stdout, process.stderr)):
            stack.enter_context(pipe)
        return process

    def _read(self, process: subprocess.Popen[bytes], ends: float) -> tuple[bytes, bytes]:
        """Read what it prints and what it complains until it closes both."""
        output, complaints = bytearray(), bytearray()
        with selectors.DefaultSelector() as selector:
            for pipe, read in ((process.stdout, output), (process.stderr, complaints)):
                if pipe:
                    selector.register(pipe, selectors.EVENT_READ, read)
            while selector.get_map():
                remaining = ends - time.monotonic()
                ready = selector.select(remaining) if remaining > 0 else []
                if not ready:
                    raise self._late()
                for key, _ in ready:
                    key.data.extend(part := os.read(key.fd, _PART))
                    if not part:
                        selector.unregister(key.fileobj)
                del complaints[:-_COMPLAINTS]
                if len(output) > self.maximum:
                    raise ProgramError(self.terms[0], f"prints more than {self.maximum} bytes")
        return bytes(output), bytes(complaints)

    def _late(self) -> ProgramError:
        return ProgramError(self.terms[0], f"was ended after {self.seconds:g} s")


def _file_of(data: bytes) -> IO[bytes]:
    """Return a file without a name that has this. Raises OSError; then there is none."""
    file = tempfile.TemporaryFile()  # noqa: SIM115 - the caller's
    try:
        file.write(data)
        file.seek(0)
    except OSError:
        with suppress(OSError):  # what it couldn't write it tries again
            file.close()
        raise
    return file


def find(name: str, environment: Mapping[str, str] | None = None) -> str:
    """Return the path of a program; empty if it isn't installed. A name with a slash is its path already."""
    if os.sep in name:
        return name
    places = [place for place in os.get_exec_path(environment) if os.path.isabs(place)]  # noqa: PTH117 - a text
    return shutil.which(name, path=os.pathsep.join((*places, *ADMINISTRATION))) or ""


@contextmanager
def alongside(terms: Sequence[str], directory: Path) -> Iterator[None]:
    """Run a program meanwhile, with no environment: the end of its standard input, also if we are killed, ends it.

    Afterwards all that it started has ended, also where it ended before. Raises ProgramError where it can't be started.
    """
    process = _popen(terms, directory, {}, (subprocess.PIPE, subprocess.DEVNULL, subprocess.DEVNULL), terms[0])
    try:
        yield
    finally:
        if process.stdin:
            process.stdin.close()
        _let_end(process)
        _end(process)


def _popen(
    terms: Sequence[str],
    directory: Path | None,
    environment: Mapping[str, str] | None,
    streams: tuple[IO[bytes] | int, int, int],
    name: str,
) -> subprocess.Popen[bytes]:
    """Start it in a process group of its own, with its three standard streams. Raises ProgramError."""
    given, output, errors = streams
    try:
        return subprocess.Popen(
            terms,
            cwd=directory,
            env=environment,
            stdin=given,
            stdout=output,
            stderr=errors,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        why = refusal(error) if isinstance(error, OSError) else "its words can't be passed on"
        raise ProgramError(name, f"can't be run ({why})") from None


def _let_end(process: subprocess.Popen[bytes]) -> None:
    """Wait a moment for it to end by itself; it isn't reaped, so its group keeps its number until `_end` ends that."""
    if not hasattr(os, "waitid"):  # macOS before Python 3.13
        return
    deadline, how = time.monotonic() + _BURIAL, os.WEXITED | os.WNOHANG | os.WNOWAIT
    with suppress(ChildProcessError):  # where SIGCHLD is ignored nobody has to reap it
        while not os.waitid(os.P_PID, process.pid, how) and time.monotonic() < deadline:
            time.sleep(_PAUSE)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End it with all that it started, unless it has ended."""
    if process.returncode is None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_BURIAL)
