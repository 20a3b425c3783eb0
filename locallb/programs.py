"""Runs a program of this host to its end, and reads revisions of Git repositories that way.

A program gets a list of words and no shell, no terminal, no standard input but the given one, a deadline at which its
whole process group ends, and a limit of output. A revision is read from the object store as it was committed, without
filters, attributes or hooks; work tree, index and configuration of the repository stay untouched.

Not here: processes that outlive this one (`runtimes.processes`), and the meaning of files.
"""

from __future__ import annotations

import os
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import IO, NoReturn

from msgspec import Struct

from locallb.model.errors import ClientError, refusal
from locallb.model.texts import clipped, printable

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
_GLANCE = 0.2
"""Seconds between two questions whether a program is to end."""
_BURIAL = 1.0
"""Seconds for one that was ended to be gone; another user's can't be ended."""


class ProgramError(ClientError):
    """A program can't be run, takes too long, prints too much or fails: one sentence."""

    def __init__(self, name: str, why: str, remedy: str = "") -> None:
        super().__init__("; ".join(filter(None, (f"{clipped(name)} {why}", remedy))))
        self.why = why
        """The sentence without its subject and its remedy."""


class EndedProgram(Struct, frozen=True):
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
    cancelled: Callable[[], bool] = lambda: False
    """Asked now and again whether it is to end."""
    stop_timeout: float = 0.0
    """Seconds that it has after SIGTERM before its group is ended."""

    def run(self) -> EndedProgram:
        """Run it, whatever its exit code. Raises ProgramError."""
        try:
            return self._run(time.monotonic() + self.seconds)
        except OSError as error:
            raise ProgramError(self.terms[0], f"can't be run ({refusal(error)})") from error

    def _run(self, ends: float) -> EndedProgram:
        with self._standard_input() as given, ExitStack() as stack:
            process = self._started(given, stack)
            try:
                output, complaints = self._read(process, ends)
                return EndedProgram(process.wait(max(0.0, ends - time.monotonic())), output, complaints)
            except subprocess.TimeoutExpired:
                raise self._late() from None
            finally:
                self._stop(process)
                _end(process)

    def _stop(self, process: subprocess.Popen[bytes]) -> None:
        """Let it finish what it has begun, where it has time for that."""
        if self.stop_timeout and process.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGTERM)
            _let_end(process, self.stop_timeout)

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
                ready = selector.select(min(remaining, _GLANCE)) if remaining > 0 else []
                if self.cancelled():
                    raise ProgramError(self.terms[0], "was ended on request")
                if not ready and remaining <= _GLANCE:
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


def become(terms: tuple[str, ...], given: bytes | None = None) -> NoReturn:
    """Replace this process by a program, which gets its terminal, its streams and its signals. Raises ProgramError.

    `given` is what it reads as its standard input; None for that of this process.
    """
    path = find(terms[0])
    if not path:
        raise ProgramError(terms[0], "isn't installed", "install it, or name its directory in PATH")
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        if given is not None:
            with _file_of(given) as file:
                os.dup2(file.fileno(), 0)
        os.execv(path, terms)  # noqa: S606 - there is no shell
    except (OSError, ValueError) as error:
        why = refusal(error) if isinstance(error, OSError) else "its words can't be passed on"
        raise ProgramError(terms[0], f"can't be run ({why})") from None


def in_foreground(terms: Sequence[str]) -> int:
    """Run a program with our terminal and return its exit code: an interrupt that is typed there ends it, and not us.

    To call on the main thread. Raises ProgramError where it can't be started.
    """
    handler = signal.signal(signal.SIGINT, lambda _number, _frame: None)
    try:
        return subprocess.call(terms)
    except (OSError, ValueError) as error:
        why = refusal(error) if isinstance(error, OSError) else "its words can't be passed on"
        raise ProgramError(terms[0], f"can't be run ({why})") from None
    finally:
        signal.signal(signal.SIGINT, handler)


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
        _let_end(process, _BURIAL)
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


def _let_end(process: subprocess.Popen[bytes], seconds: float) -> None:
    """Wait so long for it to end by itself; it isn't reaped, so its group keeps its number until `_end` ends that."""
    if not hasattr(os, "waitid"):  # macOS before Python 3.13
        return
    deadline, how = time.monotonic() + seconds, os.WEXITED | os.WNOHANG | os.WNOWAIT
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


_TIMEOUT = 60.0
"""Seconds that one question to Git may take."""
_MAX = 2**30
"""Bytes of an answer: all manifests of a project."""
_LINK = "120000"
_FILES = frozenset({"100644", "100755", _LINK})
"""Modes of the entries of a tree that are files."""

_ELSEWHERE = frozenset({"GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_COMMON_DIR", "GIT_NAMESPACE"})
"""What Git tells its hooks about the repository that they run in: ours is the one of the project."""


class GitError(ClientError):
    """A revision can't be read: one sentence."""


class Revision(Struct, frozen=True):
    """A commit of the repository in which `project` lies."""

    project: Path
    name: str
    """As the user wrote it."""
    commit: str
    prefix: str
    """Where the project is in the repository: empty, or a path with a slash at its end."""

    @classmethod
    def open(cls, project: Path, name: str) -> Revision:
        """Find a revision. Raises GitError if there is no such one, no repository or no Git."""
        if name.startswith("-") or not name.strip():
            raise GitError(f"{name!r} is neither a directory nor a revision; name a branch, a tag or a commit")
        prefix = os.fsdecode(_git(project, "rev-parse", "--show-prefix").removesuffix(b"\n"))
        commit = _git(project, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
        if not commit:
            raise GitError(
                f"{name} is neither a directory nor a revision of the repository of {project}; "
                "fetch it (in CI with the whole history: fetch-depth 0), or correct the name"
            )
        return cls(project, name, commit.decode().strip(), prefix)

    def extract(self, paths: Collection[str], endings: tuple[str, ...], root: Path) -> None:
        """Write the files below `paths` (relative to the project) with one of the endings below `root`.

        `root` stands for the top of the repository. A path that isn't there gives nothing. Raises GitError.
        """
        wanted = sorted({self.within(path) for path in paths})
        listed = _git(self.project, "ls-tree", "-r", "-z", "--full-tree", self.commit, "--", *wanted) if wanted else b""
        entries = [entry for entry in _entries(listed) if entry.path.endswith(endings)]
        blobs = {entry.path: blob for entry, blob in zip(entries, self._blobs(entries), strict=True)}
        for entry in entries:
            data = blobs.get(_led(entry, blobs[entry.path])) if entry.link else blobs[entry.path]
            if data is not None:
                target = root / entry.path
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(data)

    def within(self, path: str) -> str:
        """Return `path` as seen from the top of the repository. Raises GitError if it lies outside."""
        whole = os.path.normpath(PurePosixPath(self.prefix) / path)
        if whole.startswith(("/", "..")):
            raise GitError(
                f"{path} lies outside the repository of {self.project}, so {self.name} says nothing about it"
            )
        return whole

    def _blobs(self, entries: Sequence[_Entry]) -> Iterator[bytes]:
        """Read all blobs in one go."""
        if not entries:
            return
        requested = "".join(f"{entry.object}\n" for entry in entries).encode()
        answer = memoryview(_git(self.project, "cat-file", "--batch", given=requested))
        position = 0
        for entry in entries:
            end = bytes(answer[position : position + 200]).find(b"\n")
            head = bytes(answer[position : position + end]).split()
            if len(head) != len(("object", "blob", "size")) or head[1] != b"blob":
                raise GitError(f"{entry.path} of {self.name} can't be read; fetch the whole history")
            start, size = position + end + 1, int(head[2])
            yield bytes(answer[start : start + size])
            position = start + size + 1


class _Entry(Struct, frozen=True):
    path: str
    object: str
    link: bool


def _entries(listed: bytes) -> Iterator[_Entry]:
    """Read what `ls-tree -z` lists; submodules are no files of this revision, nor what a forged tree has elsewhere."""
    for line in listed.decode(errors="surrogateescape").split("\0"):
        head, tab, path = line.partition("\t")
        mode, _kind, name = head.split() if tab else ("", "", "")
        within = PurePosixPath(path)
        if mode in _FILES and not within.is_absolute() and ".." not in within.parts:
            yield _Entry(path, name, mode == _LINK)


def _led(entry: _Entry, target: bytes) -> str:
    """Return the path to which a link leads. Only files that are read anyway are found there: nothing is followed."""
    return os.path.normpath(PurePosixPath(entry.path).parent / target.decode(errors="surrogateescape"))


def _git(project: Path, *terms: str, given: bytes = b"") -> bytes:
    """Ask Git; the answer of a question that is quiet about failing is empty. Raises GitError."""
    environment = {name: value for name, value in os.environ.items() if name not in _ELSEWHERE}
    # A directory of a work tree that looks like a repository could name programs for Git to run.
    trusted = ("-c", "safe.bareRepository=explicit")
    command = ("git", "-C", str(project), *trusted, "--no-optional-locks", "--literal-pathspecs", *terms)
    try:
        ended = Program(command, _TIMEOUT, maximum=_MAX, environment=environment, given=given).run()
    except ProgramError as error:
        raise GitError(f"{project} can't be compared with another revision, as git {error.why}") from None
    if ended.code and ended.complaints.strip():
        stated = " ".join(ended.complaints.decode(errors="replace").split())
        raise GitError(f"git can't read the repository of {project}: {stated}")
    return ended.output if not ended.code else b""
