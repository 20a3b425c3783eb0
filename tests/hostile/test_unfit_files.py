"""Whatever lies in place of a file that we read: each command says so in a sentence, at once, and fills no memory."""

from __future__ import annotations

import os
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from locallb import safe_files
from locallb.cli.failures import Exit
from tests.support.manifests import node
from tests.support.own_projects import place, run

__all__ = ["place"]
MIB = 1 << 20
ROOM = 2048 * MIB
"""Memory that this process may gain, so that a regression ends this test and not the machine."""
SECONDS = 20


@pytest.fixture
def project(place: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a project that is deployed, without any load balancer."""
    here = place / "here"
    assert run("init", str(here)).code == Exit.OK
    (here / "manifests").mkdir()
    (here / "manifests" / "all.yaml").write_text(yaml.safe_dump_all([node()]))
    monkeypatch.chdir(here)
    done = run("up", "--yes")
    assert done.code == Exit.OK, done.err
    return here


def bind(path: Path) -> None:
    where = os.getcwd()  # noqa: PTH109 - names of sockets are short
    os.chdir(path.parent)
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(where)


def sparse(path: Path) -> None:
    """Make a file that would fill any memory, and has no block."""
    with path.open("wb") as file:
        file.truncate(1 << 42)


def closed(path: Path) -> None:
    """Make a file that nobody may read."""
    path.write_text("{}")
    path.chmod(0)


FAULTS: dict[str, Callable[[Path], object]] = {
    "pipe": os.mkfifo,
    "endless": lambda path: path.symlink_to("/dev/zero"),
    "directory": Path.mkdir,
    "socket": bind,
    "sparse": sparse,
    "link in a circle": lambda path: path.symlink_to(path.name),
    "link to nothing": lambda path: path.symlink_to("nothing"),
}
if os.geteuid() != 0:  # root reads everything
    FAULTS["unreadable"] = closed
ALL = ("status", "up --yes", "preview", "refresh --yes", "destroy --yes", "gc", "doctor", "state check")
CHANGING = ("up --yes", "refresh --yes", "destroy --yes")
FILES = {
    "Pulumi.yaml": (*ALL, "host status", "stack list"),
    "stacks/Pulumi.dev.yaml": ("status", "up --yes", "preview", "doctor"),
    ".state/.pulumi/stacks/local-lb/dev.json": ALL,
    ".state/.pulumi/journals/local-lb/dev.jsonl": (*CHANGING, "preview", "state check"),
    ".state/.pulumi/locks/organization/local-lb/dev/other.json": CHANGING,
    ".state/.pulumi/journals/local-lb/dev.lock": CHANGING,
    ".state/locallb/dev/state-home": CHANGING,
}
"""With the commands that can't go on without it."""


@contextmanager
def bounded() -> Iterator[None]:
    """Interrupt what waits, and bound what grows."""

    def interrupt(*_: object) -> None:
        raise TimeoutError

    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    before = signal.signal(signal.SIGALRM, interrupt)
    signal.alarm(SECONDS)
    resource.setrlimit(resource.RLIMIT_AS, (used + ROOM, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def replaced(path: Path, fault: Callable[[Path], object]) -> None:
    """Put something else in a file's place."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    fault(path)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("kind", FAULTS)
def test_what_is_no_file_is_reported_at_once(project: Path, name: str, kind: str) -> None:
    """By every command that needs it, with its path."""
    replaced(project / name, FAULTS[kind])
    for terms in dict.fromkeys((*FILES[name], "status")):
        with bounded():
            done = run(*terms.split())
        reported = f"{done.out}{done.err}"
        assert "a mistake in local-lb" not in reported, terms
        assert "MemoryError" not in reported, terms
        assert "TimeoutError" not in reported, terms
        if terms in FILES[name] and not (kind == "sparse" and name.endswith(".lock")):  # which is emptied
            assert done.code == Exit.FAILED, (terms, reported)
            assert str(project / name) in reported, terms


@pytest.mark.parametrize("kind", [kind for kind in FAULTS if kind != "unreadable"])
def test_reading_says_what_it_found(tmp_path: Path, kind: str) -> None:
    """And nothing at all is the only thing that counts as no file."""
    FAULTS[kind](tmp_path / "file")
    with bounded(), pytest.raises(OSError, match="file") as raised:
        safe_files.read_if_present(tmp_path / "file", MIB)
    assert raised.value.strerror
    assert safe_files.read_if_present(tmp_path / "other", MIB) is None
    for flags in (os.O_WRONLY | os.O_CREAT | os.O_TRUNC, os.O_WRONLY | os.O_APPEND):
        if kind == "sparse":
            os.close(safe_files.open_to_write(tmp_path / "file", flags))
        else:
            with bounded(), pytest.raises(OSError, match="file"):
                safe_files.open_to_write(tmp_path / "file", flags)
    assert not (tmp_path / "nothing").exists()


@pytest.mark.parametrize("name", [".state/.pulumi/stacks/local-lb/dev.json", "stacks/Pulumi.dev.yaml"])
def test_watch_reports_a_pipe_and_still_ends_when_it_is_told_to(project: Path, name: str) -> None:
    """It goes on waiting for a file that it can read."""
    replaced(project / name, os.mkfifo)
    command = [str(Path(sys.executable).parent / "locallb"), "watch", "--plain"]
    process = subprocess.Popen(command, cwd=project, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        assert process.stdout
        lines = iter(process.stdout.readline, "")
        assert any(f"{project / name} " in line and "it is no regular file" in line for line in lines)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=SECONDS)
    finally:
        process.kill()
        process.wait()
