"""One writer at a time: who gives way, which locks are removed, which never."""

import fcntl
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from locallb.engine.core.events import Result
from locallb.engine.state.errors import LockHeld
from locallb.engine.store import Layout
from tests.engine.interrupting import SECONDS, lock
from tests.support.balancers import ONE, declare
from tests.support.engine import Bench

KERNEL = Path("/proc/sys/kernel/random/boot_id")


def dead_pid() -> int:
    """Return the id of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_a_lock_is_held_during_an_update_and_never_while_idle(bench: Bench) -> None:
    """Its file is the official command line's, which passes over what it doesn't know."""
    observed: list[dict[str, object]] = []

    def program() -> None:
        folder = bench.project.backend / ".pulumi" / "locks"
        observed.extend(json.loads(path.read_text()) for path in folder.rglob("*.json"))
        declare(ONE)

    assert bench.engine().up(program).ok
    assert [list(found) for found in observed] == [["pid", "username", "hostname", "timestamp", "kernel"]]
    assert observed[0]["pid"] == os.getpid()
    assert list((bench.project.backend / ".pulumi" / "locks").rglob("*.json")) == []


def test_a_lock_of_this_host_whose_process_is_gone_is_removed_with_a_notice(bench: Bench) -> None:
    """The update goes on."""
    path = lock(bench, dead_pid())
    result = bench.engine().up(lambda: declare(ONE))
    assert result.ok
    assert not path.exists()
    assert "removed the lock" in result.diagnostics[0].message


def test_a_lock_whose_process_id_was_given_to_another_process_is_removed(bench: Bench) -> None:
    """The process started after the lock."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        lock(bench, process.pid, when="2020-01-01T00:00:00Z")
        assert bench.engine().up(lambda: declare(ONE)).ok
    finally:
        process.communicate(b"\n")


def test_a_lock_of_a_living_process_is_respected(bench: Bench) -> None:
    """The sentence names holder, file and way out."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        path = lock(bench, process.pid, when="9999-01-01T00:00:00Z")
        with pytest.raises(LockHeld, match=f"pid {process.pid}") as caught:
            bench.engine().up(lambda: declare(ONE))
        assert str(path) in str(caught.value)
        assert "pulumi cancel" in str(caught.value)
        assert path.exists()
        assert bench.world.calls == []
    finally:
        process.communicate(b"\n")


@pytest.mark.parametrize("when", ["", "some day"])
def test_a_lock_of_another_host_is_never_removed(when: str, bench: Bench) -> None:
    """Whatever its process id says."""
    path = lock(bench, dead_pid(), "elsewhere", when)
    for _ in range(2):
        with pytest.raises(LockHeld, match="me@elsewhere"):
            bench.engine().destroy()
    assert path.exists()


@pytest.mark.parametrize("kernel", [KERNEL.read_text().strip(), "another"])
def test_a_lock_of_a_container_of_this_machine_is_removed_once_that_is_gone(kernel: str, bench: Bench) -> None:
    """It has a host's name and process ids of its own, and held the system's lock, which went with it."""
    path = lock(bench, os.getppid(), "a-container")
    path.write_text(json.dumps({**json.loads(path.read_text()), "kernel": kernel}))
    if kernel == "another":
        with pytest.raises(LockHeld, match="me@a-container"):
            bench.engine().up(lambda: declare(ONE))
    else:
        result = bench.engine().up(lambda: declare(ONE))
        assert "removed the lock" in result.diagnostics[0].message
    assert path.exists() == (kernel == "another")


def test_a_lock_of_a_container_that_is_at_work_is_respected(bench: Bench) -> None:
    """As long as it has the system's lock."""
    path = lock(bench, dead_pid(), "a-container")
    path.write_text(json.dumps({**json.loads(path.read_text()), "kernel": KERNEL.read_text().strip()}))
    guard = Layout(bench.project.backend, "local-lb", "dev").guard
    guard.parent.mkdir(parents=True, exist_ok=True)
    with guard.open("w") as system_lock:
        fcntl.flock(system_lock, fcntl.LOCK_EX)
        with pytest.raises(LockHeld, match="me@a-container"):
            bench.engine().up(lambda: declare(ONE))
    assert path.exists()


def test_a_lock_that_cannot_be_read_is_respected(bench: Bench) -> None:
    """Nobody knows whose it is."""
    path = lock(bench, 1)
    path.write_text("?")
    with pytest.raises(LockHeld, match="unknown host"):
        bench.engine().up(lambda: declare(ONE))


@pytest.mark.parametrize("kind", ["directory", "too deep", "a list", "no number", "out of range", "no text"])
def test_anything_in_place_of_a_lock_file_is_respected(kind: str, bench: Bench) -> None:
    """And told in a sentence with the file."""
    path = lock(bench, 1)
    content = path.read_text()
    if kind == "directory":
        path.unlink()
        path.mkdir()
    else:
        texts = {"too deep": "[" * 100_000, "a list": "[1]", "no text": "\udcff"}
        wrong = {"no number": '"pid":"me"', "out of range": '"pid":1e999'}.get(kind, "")
        path.write_text(texts.get(kind) or content.replace('"pid": 1', wrong), errors="surrogateescape")
    with pytest.raises(LockHeld, match="unknown host") as caught:
        bench.engine().up(lambda: declare(ONE))
    assert str(path) in str(caught.value)


def test_a_preview_ignores_locks(bench: Bench) -> None:
    """It writes nothing."""
    lock(bench, 1, "elsewhere")
    assert bench.engine().preview(lambda: declare(ONE)).ok


def test_second_concurrent_update_is_refused(bench: Bench) -> None:
    """An update during another, or during a destroy, changes nothing."""
    results: list[Result] = []
    running, tried = threading.Event(), threading.Event()
    bench.world.control = {"meanwhile": {"LoopbackAddress::alpha": lambda: tried.wait(SECONDS)}}

    def program() -> None:
        running.set()
        declare(ONE)

    thread = threading.Thread(target=lambda: results.append(bench.engine().up(program)))
    thread.start()
    running.wait(SECONDS)
    with pytest.raises(LockHeld):
        bench.engine().up(lambda: declare(ONE))
    with pytest.raises(LockHeld):
        bench.engine().destroy()
    tried.set()
    thread.join()
    assert results[0].ok
    assert len(bench.world.called("create")) == 5
    assert bench.engine().up(lambda: declare(ONE)).unchanged


def test_who_waits_for_the_lock_is_known_for_as_long_as_it_lives(bench: Bench) -> None:
    """Several may; one that updates again and again gives way to them."""
    updates = bench.engine().updates({})
    waits = "import sys; from pathlib import Path; from locallb.engine.store import Store\n"
    waits += "with Store(Path(sys.argv[1]), 'local-lb', 'dev').waiting(): print(flush=True); input()"
    command = [sys.executable, "-c", waits, str(bench.project.backend)]
    updates.give_way()
    processes = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) for _ in range(2)]
    for number, process in enumerate(processes):
        assert process.stdout is not None
        assert process.stdout.readline()
        with pytest.raises(LockHeld, match="a command waits"):
            updates.give_way()
        if number:
            processes[0].kill()
            processes[0].communicate()
            with pytest.raises(LockHeld):
                updates.give_way()
            process.communicate(b"\n")
    updates.give_way()
    assert bench.engine().up(lambda: declare(ONE)).ok
