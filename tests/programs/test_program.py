"""Programs of this host: whatever one does, it holds nobody up, and what is wrong with it is one sentence."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
from pathlib import Path
from typing import Any

import pytest

from locallb import programs as program
from locallb.programs import Program, ProgramError
from tests.support.descriptors import few_files


def shell(script: str, seconds: float = 60.0, remedy: str = "", maximum: int = program.MAX) -> Program:
    return Program(("sh", "-c", script), seconds, remedy, maximum)


def test_program_gets_only_the_given_arguments_input_and_environment() -> None:
    """Its words as they are, its input, its directory, its environment; no terminal."""
    assert Program(("printf", "%s|", "a b", "$HOME", "*"), 60.0).output() == "a b|$HOME|*|"
    given = bytes(range(256)) * 4096
    assert Program(("cat",), 60.0, given=given).run().output == given
    assert shell("cat").run().output == b""
    elsewhere = Program(("/bin/sh", "-c", "pwd; echo $A"), 60.0, directory=Path("/"), environment={"A": "b"})
    assert elsewhere.output() == "/\nb\n"
    with pytest.raises(ProgramError, match="sh says"):
        shell("exec </dev/tty").output()


def test_both_of_what_it_prints_are_read_together() -> None:
    """More than a pipe holds of each; of its complaints the end is kept."""
    ended = shell("head -c 200000 /dev/zero >&2; head -c 200000 /dev/zero; echo last >&2; exit 7").run()
    assert (ended.code, len(ended.output), len(ended.complaints)) == (7, 200_000, 2**16)
    assert ended.complaints.endswith(b"last\n")


@pytest.mark.parametrize(
    ("script", "reported"),
    [
        ("exit 3", "sh ended with 3; try again"),
        ("kill -9 $$", "sh ended with -9; try again"),
        ("echo first >&2; echo 'sh: last' >&2; exit 1", 'sh says "last"; try again'),
        ("echo printed; exit 1", 'sh says "printed"; try again'),
        (r"printf 'a\033[2Jb' >&2; exit 1", r'sh says "a\\x1b\[2Jb"; try again'),
    ],
)
def test_failed_program_is_reported_by_its_last_output_line(script: str, reported: str) -> None:
    """On one line, and with what to do."""
    with pytest.raises(ProgramError, match=f"^{reported}$"):
        shell(script, remedy="try again").output()


@pytest.mark.parametrize(
    "script",
    ["sleep 1000", "sleep 1000 & exit 0", "trap '' TERM INT HUP; sleep 1000", "yes >&2", "exec >&- 2>&-; sleep 1000"],
)
def test_program_beyond_its_time_limit_is_ended(script: str) -> None:
    """Also while it writes errors without end, or has closed its output."""
    with pytest.raises(ProgramError, match=r"^sh was ended after 0.5 s$"):
        shell(script, 0.5).run()


def test_program_ends_with_its_process_group(tmp_path: Path) -> None:
    """Its whole process group."""
    with pytest.raises(ProgramError, match="was ended"):
        shell(f"sleep 1000 & echo $! > {tmp_path}/child; wait", 1.0).run()
    child = int((tmp_path / "child").read_text())
    while _lives(child):
        pass


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def test_program_beyond_its_output_limit_is_ended() -> None:
    """However long its time limit is."""
    with pytest.raises(ProgramError, match=r"^sh prints more than 1000 bytes$"):
        shell("cat /dev/zero", maximum=1000).run()


def test_background_child_does_not_delay_a_program_whose_stderr_is_not_read(tmp_path: Path) -> None:
    """The child may go on writing there."""
    script = f"sleep 1000 >/dev/null & echo $! > {tmp_path}/child; echo said"
    ended = Program(("sh", "-c", script), 60.0, heard=False).run()
    os.kill(int((tmp_path / "child").read_text()), 9)
    assert (ended.code, ended.output, ended.last_output) == (0, b"said\n", "said")


def test_program_that_cannot_be_run_is_reported_by_name(tmp_path: Path) -> None:
    """With the reason; a missing one with the remedy."""
    with pytest.raises(ProgramError, match=r"^no-such isn't installed; install it, or name its directory in PATH$"):
        Program(("no-such",), 60.0).run()
    with pytest.raises(ProgramError, match=r"^/no/such can't be run \(No such file or directory\)$"):
        Program(("/no/such",), 60.0).run()
    with pytest.raises(ProgramError, match=r"^sh can't be run \(No such file or directory\)$"):
        Program(("sh",), 60.0, directory=tmp_path / "absent").run()
    with pytest.raises(ProgramError, match="its words can't be passed on"):
        Program(("sh", "\0"), 60.0).run()


def test_tools_of_administrators_are_found_without_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In PATH first, then where those are; the directory that we are in isn't searched."""
    named, other = tmp_path / "named", tmp_path / "other"
    for directory, tools in ((named, "a"), (other, "ab"), (tmp_path, "c")):
        directory.mkdir(exist_ok=True)
        for tool in tools:
            (directory / tool).symlink_to("/bin/true")
    monkeypatch.setattr(program, "ADMINISTRATION", (str(other),))
    monkeypatch.setenv("PATH", str(named))
    monkeypatch.chdir(tmp_path)
    assert [program.find(name) for name in "abc"] == [str(named / "a"), str(other / "b"), ""]
    assert program.find("a", {"PATH": str(other)}) == str(other / "a")
    monkeypatch.delenv("PATH")
    assert program.find("c") == ""


@pytest.mark.parametrize("path", ["", ".", ":/bin", "/bin:", "/bin::/usr/bin", "tools", "../here/tools"])
def test_program_in_the_current_directory_is_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    """Whatever PATH says: in a shell an empty element of it is that directory."""
    for directory in (tmp_path / "here", tmp_path / "here" / "tools"):
        directory.mkdir()
        (directory / "planted").symlink_to("/bin/true")
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("PATH", path)
    assert program.find("planted") == ""
    assert program.find("planted", {"PATH": path}) == ""
    with pytest.raises(ProgramError, match="isn't installed"):
        Program(("planted",), 60.0).run()


@pytest.mark.filterwarnings("ignore:subprocess .* is still running:ResourceWarning")
def test_program_that_may_not_be_killed_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """As one that runs as another user, such as sudo."""
    started: list[int] = []

    def forbid(group: int, _signal: int) -> None:
        started.append(group)
        raise PermissionError

    monkeypatch.setattr(os, "killpg", forbid)
    monkeypatch.setattr(program, "_BURIAL", 0.1)
    try:
        with pytest.raises(ProgramError, match="was ended"):
            shell("sleep 1000", 0.5).run()
        with program.alongside(("/bin/sleep", "1000"), Path("/")):
            pass
        assert all(map(_lives, started))
    finally:
        for pid in started:
            os.kill(pid, 9)


def test_unwritable_program_input_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk, or no directory for temporary files."""
    full = Path("/dev/full").open("w+b", buffering=0)  # noqa: SIM115 - closed by whom it is given to
    monkeypatch.setattr("tempfile.TemporaryFile", lambda: full)
    with pytest.raises(ProgramError, match=r"^cat can't be given its input .*\(No space left on device; make room"):
        Program(("cat",), 60.0, given=b"a").run()


@pytest.mark.parametrize("room", [0, 5000])
def test_program_input_that_fills_the_disk_is_reported(room: int) -> None:
    """However much of it is still to be written when its file is given up."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, before[1]))
    try:
        with pytest.raises(ProgramError, match=r"^cat can't be given its input by a file in .*File too large; raise"):
            Program(("cat",), 60.0, given=b"x" * 6000).run()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_program_without_enough_descriptors_is_reported() -> None:
    """In one sentence, whichever descriptor is lacking."""
    reported = []
    for spare in range(12):
        with few_files(spare):
            try:
                assert Program(("cat",), 60.0, given=b"x").run().output == b"x"
            except ProgramError as error:
                reported.append(str(error))
    assert all("Too many open files; raise the limit of open files" in sentence for sentence in reported)
    assert 6 <= len(reported) < 12


def test_process_limit_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """Root has no limit of its own, so the system's answer is played."""

    def refused(*_terms: object, **_more: object) -> None:
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    monkeypatch.setattr(subprocess, "Popen", refused)
    with pytest.raises(ProgramError, match=r"^cat can't be run \(.*unavailable; raise the limit of processes"):
        Program(("cat",), 60.0).run()
    with pytest.raises(ProgramError, match="raise the limit of processes"), program.alongside(("cat",), Path("/")):
        pytest.fail("it can't be started")


def test_interrupted_program_leaves_no_process_or_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """As by Ctrl-C, which the program itself doesn't see."""
    started: list[subprocess.Popen[bytes]] = []

    def interrupt(_self: Program, process: subprocess.Popen[bytes], _ends: float) -> tuple[bytes, bytes]:
        started.append(process)
        raise KeyboardInterrupt

    monkeypatch.setattr(Program, "_read", interrupt)
    with pytest.raises(KeyboardInterrupt):
        shell("sleep 1000").run()
    assert started[0].returncode == -9


def test_alongside_program_gets_end_of_input_when_the_block_is_left(tmp_path: Path) -> None:
    """It has ended by then."""
    with program.alongside(("/bin/sh", "-c", "echo $$ > started; read -r _; echo >ended"), tmp_path):
        while not (tmp_path / "started").exists():
            pass
        assert not (tmp_path / "ended").exists()
    assert (tmp_path / "ended").exists()


def test_alongside_program_that_cannot_be_started_is_reported(tmp_path: Path) -> None:
    """With the reason that the system gives."""
    with (
        pytest.raises(ProgramError, match=r"can't be run \(No such file or directory\)"),
        program.alongside(("/nowhere/sh",), tmp_path),
    ):
        pytest.fail("it runs")


def test_alongside_program_may_be_reaped_before_the_block_is_left(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As where SIGCHLD is ignored: then the kernel reaps it."""
    started: list[subprocess.Popen[bytes]] = []
    popen = subprocess.Popen

    def note(*terms: Any, **named: Any) -> subprocess.Popen[bytes]:  # noqa: ANN401 - those of `Popen`
        started.append(popen(*terms, **named))
        return started[0]

    monkeypatch.setattr(subprocess, "Popen", note)
    with program.alongside(("/bin/sh", "-c", "exit 0"), tmp_path):
        os.waitpid(started[0].pid, 0)
