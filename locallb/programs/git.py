"""Reads a revision of a Git repository without touching its work tree, index or configuration.

Files come from the object store as they were committed: no filters, no attributes, no hooks. Not here: what they mean.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path, PurePosixPath

from msgspec import Struct

from locallb.model.errors import ClientError
from locallb.programs.program import Program, ProgramError

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
