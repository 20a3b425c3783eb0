"""One process at a time: who comes second is told who is there, and a holder that ends in any way is none."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest

from locallb.model.errors import REMEDIES, ClientError
from locallb.runtimes import processes, single_instance
from locallb.runtimes.single_instance import AlreadyRunningError, holder, only_one
from tests.support.descriptors import few_files

HOLD = """
import sys, time
from pathlib import Path
from locallb.runtimes.single_instance import only_one
with only_one(Path(sys.argv[1]), "it"):
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_second_instance_names_the_holder_of_the_lock(tmp_path: Path) -> None:
    """Then it is free again, and no file remains."""
    path = tmp_path / "lock"
    reported = f"the loop runs already .pid {os.getpid()}.: end"
    with only_one(path, "the loop"), pytest.raises(AlreadyRunningError, match=reported), only_one(path, "the loop"):
        pass
    with only_one(path, "the loop"):
        assert path.exists()
    assert not path.exists()


def test_a_lock_that_cannot_be_made_is_one_sentence(tmp_path: Path) -> None:
    """On a read-only disk, or where something else stands in its place."""
    (tmp_path / "lock").mkdir()
    reported = "lock, which keeps a second loop away, can't be written"
    with pytest.raises(AlreadyRunningError, match=reported), only_one(tmp_path / "lock", "loop"):
        pytest.fail("nobody may hold it")


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EMFILE, errno.EACCES])
def test_a_lock_that_the_system_refuses_is_reported_with_what_helps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """Rights are no help on a full disk."""

    def refuse(*_: object) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(AlreadyRunningError, match=re.escape(REMEDIES[number])), only_one(tmp_path / "lock", "loop"):
        pytest.fail("nobody may hold it")


def test_a_holder_that_is_killed_holds_nothing(tmp_path: Path) -> None:
    """The lock is the kernel's."""
    path = tmp_path / "lock"
    with subprocess.Popen([sys.executable, "-c", HOLD, str(path)], stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout
        assert other.stdout.readline() == "held\n"
        with pytest.raises(AlreadyRunningError, match=str(other.pid)), only_one(path, "it"):
            pass
        other.send_signal(signal.SIGKILL)
    with only_one(path, "it"):
        assert path.read_text() == f"{os.getpid()}\n"


def test_lock_holder_is_found_without_taking_the_lock(tmp_path: Path) -> None:
    """The very process, not the number in a file that nobody holds; a link and a FIFO say nothing."""
    path = tmp_path / "lock"
    assert holder(path) is None
    path.write_text(f"{os.getpid()}\n")
    assert holder(path) is None
    with only_one(path, "it"):
        assert holder(path) == processes.identify(os.getpid())
    (tmp_path / "link").symlink_to(path)
    os.mkfifo(tmp_path / "fifo")
    assert [holder(tmp_path / name) for name in ("link", "fifo")] == [None, None]


def test_short_look_at_the_lock_causes_no_refusal(tmp_path: Path) -> None:
    """A look takes the lock along with others for a moment; a process that starts then waits for its end."""
    path = tmp_path / "lock"
    path.touch(0o600)
    reading = os.open(path, os.O_RDONLY)
    fcntl.flock(reading, fcntl.LOCK_SH)
    threading.Timer(0.2, os.close, (reading,)).start()
    with only_one(path, "it"):
        assert holder(path) == processes.identify(os.getpid())


def test_endless_look_at_the_lock_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process that looks may be stopped."""
    monkeypatch.setattr(single_instance, "_TIMEOUT", 0.02)
    path = tmp_path / "lock"
    path.touch(0o600)
    reading = os.open(path, os.O_RDONLY)
    fcntl.flock(reading, fcntl.LOCK_SH)
    with pytest.raises(AlreadyRunningError), only_one(path, "it"):
        pytest.fail("it is held")
    os.close(reading)


def test_a_holder_that_cannot_be_looked_for_is_not_called_absent(tmp_path: Path) -> None:
    """`destroy` would go on beside a watch."""
    path = tmp_path / "lock"
    with only_one(path, "it"):
        for spare in range(2):
            with few_files(spare), pytest.raises(ClientError, match="raise the limit of open files"):
                holder(path)


def test_whether_a_process_has_a_file_open_is_true_or_unknown(tmp_path: Path) -> None:
    """`destroy --stop-watch` would call a watch of this host one that runs elsewhere."""
    path, process = tmp_path / "lock", processes.identify(os.getpid())
    assert process
    with only_one(path, "it"):
        with few_files(0), pytest.raises(processes.ProcessError, match="raise the limit of open files"):
            processes.has_open(process, path)
        with few_files(1):
            assert processes.has_open(process, path)


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
def test_whether_another_users_process_has_a_lock_is_not_guessed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """Of which the kernel tells in a file, too."""

    def refuse(path: Path, **_: object) -> str:
        raise OSError(number, os.strerror(number), str(path))

    process = processes.identify(os.getpid())
    assert process
    monkeypatch.setattr(Path, "iterdir", lambda _: (_ for _ in ()).throw(PermissionError(errno.EACCES, "")))
    monkeypatch.setattr(Path, "read_text", refuse)
    with pytest.raises(processes.ProcessError, match=re.escape(REMEDIES[number])):
        processes.has_open(process, tmp_path)


UNPRIVILEGED_ID = 65534
ASK = f"""
import codecs, os, sys
from pathlib import Path
from locallb.runtimes import processes
codecs.lookup("ascii"), os.setgroups([]), os.setgid({UNPRIVILEGED_ID}), os.setuid({UNPRIVILEGED_ID})
print([processes.has_open(processes.identify(int(pid)), Path(sys.argv[1])) for pid in sys.argv[2:]])
"""


@pytest.mark.root(only="can be another user")
def test_lock_holder_of_another_user_is_recognised_by_its_lock() -> None:
    """Its open files can't be read; a process with a number that was written down isn't the holder."""
    with tempfile.TemporaryDirectory() as directory, only_one(Path(directory) / "lock", "it"):
        Path(directory).chmod(0o755)
        with subprocess.Popen(["sleep", "60"]) as stranger:
            pids = [str(os.getpid()), str(stranger.pid)]
            terms = [sys.executable, "-c", ASK, f"{directory}/lock", *pids]
            done = subprocess.run(terms, check=False, capture_output=True, text=True)
            stranger.kill()
    assert (done.stdout.strip(), done.stderr) == ("[True, False]", "")
