"""Processes: detached, told apart, stopped without races."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from locallb.runtimes import handover, processes
from locallb.runtimes.processes import Process, ProcessError
from locallb.storage.proxy_directories import PROXY_MARK
from tests.support.descriptors import few_files
from tests.support.waiting import becomes

KEY = "LOCALLB_TEST"


@pytest.fixture
def mark(tmp_path: Path) -> Iterator[dict[str, str]]:
    """Return a mark of this test's own; what carries it at the end is stopped."""
    yield {KEY: str(tmp_path)}
    for process in processes.find(KEY, str(tmp_path)):
        processes.stop(process, 0)


def python(program: str) -> list[str]:
    """Make the command that runs a program."""
    return [sys.executable, "-c", program]


def ended(process: Process) -> bool:
    """Wait for the end of a process."""
    becomes(lambda: not processes.is_alive(process), f"the end of process {process.pid}")
    return True


def test_a_started_process_is_the_program_itself(tmp_path: Path, mark: dict[str, str]) -> None:
    """Its directory, output, environment, session and limits are what was asked for."""
    program = "import os, sys, time; print(os.getcwd(), os.getpid(), flush=True); time.sleep(60)"
    process = processes.start(python(program), tmp_path, mark, tmp_path / "log")
    assert processes.is_alive(process)
    assert processes.find(KEY, str(tmp_path)) == (process,)
    while not processes.last_output(tmp_path / "log"):
        time.sleep(0.01)
    assert processes.last_output(tmp_path / "log") == f"{tmp_path} {process.pid}"
    assert (tmp_path / "log").stat().st_mode & 0o777 == 0o600
    assert os.getsid(process.pid) not in (os.getsid(0), 0)
    files, hard = resource.prlimit(process.pid, resource.RLIMIT_NOFILE)
    assert files == hard == resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    processes.stop(process, 5)
    assert not processes.is_alive(process)
    assert processes.find(KEY, str(tmp_path)) == ()


def test_a_command_is_taken_literally(tmp_path: Path, mark: dict[str, str]) -> None:
    """The shell that starts it sees no word of it as its own."""
    terms = ["a b", "$HOME", "`id`", "*", '"', "'", "--", ";"]
    program = "import sys; print(sys.argv[1:])"
    process = processes.start([*python(program), *terms], tmp_path, mark, tmp_path / "log")
    assert ended(process)
    assert processes.last_output(tmp_path / "log") == str(terms)


def test_failed_exec_is_reported_in_the_log_of_the_process(tmp_path: Path, mark: dict[str, str]) -> None:
    """It is a process that ended, with the reason in the log."""
    process = processes.start([str(tmp_path / "absent")], tmp_path, mark, tmp_path / "log")
    assert ended(process)
    assert "absent" in processes.last_output(tmp_path / "log")


def test_a_start_without_directory_or_log_is_an_error(tmp_path: Path, mark: dict[str, str]) -> None:
    """No process then, and one sentence."""
    with pytest.raises(ProcessError, match="can't be started"):
        processes.start(python(""), tmp_path / "absent", mark, tmp_path / "log")
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ProcessError, match="can't be started"):
        processes.start(python(""), tmp_path, mark, tmp_path / "link")
    assert not (tmp_path / "elsewhere").exists()


def test_a_log_ends_at_its_limit_and_the_process_lives_on(
    tmp_path: Path, mark: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Writing beyond is an error that the program may ignore."""
    monkeypatch.setattr(processes, "LOG_LIMIT", 4096)
    program = """
import os, time
for _ in range(1000):
    try: os.write(1, b"x" * 100)
    except OSError: pass
open("done", "w")
time.sleep(60)"""
    process = processes.start(python(program), tmp_path, mark, tmp_path / "log")
    while not (tmp_path / "done").exists():
        assert processes.is_alive(process)
        time.sleep(0.01)
    assert (tmp_path / "log").stat().st_size <= 4096


def test_process_that_ignores_sigterm_is_killed(tmp_path: Path, mark: dict[str, str]) -> None:
    """SIGTERM first, SIGKILL after the given seconds."""
    program = "import signal, time; signal.signal(15, signal.SIG_IGN); open('ready', 'w'); time.sleep(60)"
    process = processes.start(python(program), tmp_path, mark, tmp_path / "log")
    while not (tmp_path / "ready").exists():
        time.sleep(0.01)
    start = time.monotonic()
    processes.stop(process, 0.3)
    assert time.monotonic() - start >= 0.3
    assert not processes.is_alive(process)


def test_a_zombie_counts_as_ended() -> None:
    """It has its pid and start time still, but runs no more."""
    child = subprocess.Popen(python("input()"), stdin=subprocess.PIPE)
    try:
        process = identity(child.pid)
        assert processes.is_alive(process)
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert not processes.is_alive(process)
        processes.stop(process, 1)
        assert not processes.is_alive(process)
    finally:
        child.communicate()


def test_a_pid_with_another_start_is_another_process() -> None:
    """Neither alive nor stopped in its place."""
    with subprocess.Popen(python("input()"), stdin=subprocess.PIPE) as child:
        other = Process(child.pid, "boot.1")
        assert not processes.is_alive(other)
        assert processes.mark_of(other) == {}
        processes.stop(other, 1)
        assert child.poll() is None


def identity(pid: int) -> Process:
    """Read a process's identity as `start` does."""
    stat = processes._stat(pid)
    assert stat is not None
    return stat.process


def test_stopping_what_is_gone_is_fine() -> None:
    """Also for a pid that nobody has."""
    processes.stop(Process(2**22 - 1, "boot.1"), 1)
    assert not processes.is_alive(Process(2**22 - 1, "boot.1"))


@pytest.mark.parametrize("name", ["x", "a) R 1 (b", ") ) )", "\n"])
def test_a_name_does_not_confuse(name: str) -> None:
    """A process may call itself anything, brackets included."""
    line = f"42 ({name}) S 1 {' '.join(str(number) for number in range(5, 53))}"
    stat = processes._parse(line)
    assert stat is not None
    assert (stat.process.pid, stat.process.started.rpartition(".")[2], stat.runs) == (42, "22", True)
    assert processes._parse(line.replace(" S 1", " Z 1")) != stat
    assert processes._parse(line[:10]) is None


def test_many_threads_start_at_once(tmp_path: Path, mark: dict[str, str]) -> None:
    """Each gets its own process; none is left to us as a zombie."""
    started: list[Process] = []

    def start(number: int) -> None:
        program = "import time; time.sleep(60)"
        started.append(processes.start(python(program), tmp_path, mark, tmp_path / f"log{number}"))

    threads = [threading.Thread(target=start, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(started)) == 12
    for process in started:
        processes.stop(process, 5)
    with suppress(ChildProcessError):  # no child at all: none of pytest's own either
        assert os.waitpid(-1, os.WNOHANG) == (0, 0)


def test_processes_of_several_proxies_are_found_by_one_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look goes through all processes of the host: ten Envoys that start at once don't need ten."""
    checks: list[str] = []
    found = processes.marked

    def marked(key: str) -> Mapping[Process, Mapping[str, str]]:
        checks.append(key)
        return found(key)

    monkeypatch.setattr(processes, "marked", marked)
    directories = [tmp_path / name for name in "abc"]
    for directory in directories:
        directory.mkdir()
    log, terms = tmp_path / "log", python("import time; time.sleep(60)")
    started = [processes.start(terms, tmp_path, {PROXY_MARK: str(directory)}, log) for directory in directories[:2]]
    try:
        with ThreadPoolExecutor(3) as threads:
            with handover._RUNNING.turn:
                answers = [threads.submit(handover.running, directory) for directory in directories]
                becomes(lambda: len(handover._RUNNING._waiting) == len(directories), "all threads ask")
            assert [answer.result() for answer in answers] == [(started[0],), (started[1],), ()]
    finally:
        for process in started:
            processes.stop(process, 0)
    assert checks == [PROXY_MARK]


def test_the_end_of_a_log_fits_a_sentence(tmp_path: Path) -> None:
    """The last lines in one, without colours and bells; nothing where there is no log."""
    log = tmp_path / "log"
    assert processes.last_output(log) == ""
    log.write_text("first\n" * 1000 + "\x1b[31mred\x07\nlast\n")
    assert processes.last_output(log, 2) == "[31mred | last"
    assert processes.last_output(log, 2, without="red|las") == "first | first"


def test_process_that_cannot_be_examined_does_not_count_as_gone(tmp_path: Path, mark: dict[str, str]) -> None:
    """Otherwise a second one would be started beside it, or it would be left behind."""
    log = tmp_path / "log"
    process = processes.start(python("import time; time.sleep(60)"), tmp_path, mark, log)
    checks: list[Callable[[], object]] = [
        lambda: processes.is_alive(process),
        lambda: processes.identify(process.pid),
        lambda: processes.mark_of(process),
        lambda: processes.find(KEY, str(tmp_path)),
        lambda: processes.stop(process, 0),
        lambda: processes.start(python(""), tmp_path, mark, log),
    ]
    for inspect in checks:
        for spare in range(2):
            with few_files(spare), suppress(ProcessError):
                assert inspect() not in (False, None, {}, ()), "it runs"
        with few_files(0), pytest.raises(ProcessError, match="Too many open files; raise the limit of open files"):
            inspect()
