"""A host that gives no descriptor: told with what helps, no state is called broken, no lock of the living is taken."""

import errno
import gc
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from locallb.engine.protocol_providers import new_loop
from locallb.engine.stack_lock import LockHolder, read_holders
from locallb.engine.state.checkpoint import check_state, timestamp
from locallb.engine.state.errors import (
    EngineError,
    HostRefused,
    StateBroken,
    StateUnreadable,
    StateUnusable,
    StateUnwritable,
)
from locallb.engine.state.files import Files
from locallb.engine.store import Backups, Layout, Store, restore
from locallb.model import errors as system_errors
from tests.engine.interrupting import lock
from tests.support.balancers import ONE, declare, spec
from tests.support.descriptors import few_files
from tests.support.engine import Bench

SOME, ENOUGH = 7, 20
"""Descriptors with which an update can't end well, and with which it must."""
PARTS = 3
"""Descriptors of an event loop: what it waits with, and both ends of what wakes it."""
REMEDY = "raise the limit of open files"


@pytest.mark.parametrize("spare", range(ENOUGH + 1))
def test_an_update_that_gets_few_descriptors_is_reported_and_finished_by_the_next(
    bench: Bench, spare: int, capfd: pytest.CaptureFixture[str]
) -> None:
    """However far it comes: sentences with the remedy, a sound state, nothing but them on standard error."""
    assert bench.engine().up(lambda: declare(ONE)).ok
    engine = bench.engine()
    with few_files(spare):
        try:
            reported = [reported.message for reported in engine.up(lambda: declare(spec())).diagnostics]
        except EngineError as error:
            reported = [str(error)]
    assert all(REMEDY in sentence for sentence in reported)
    assert reported or spare >= SOME
    assert not reported or spare < ENOUGH
    assert capfd.readouterr().err == ""
    assert check_state(bench.state_path) == ()
    assert bench.engine().up(lambda: declare(spec())).ok
    assert bench.engine().up(lambda: declare(spec())).unchanged


def test_a_state_that_cannot_be_opened_is_as_good_as_ever(bench: Bench) -> None:
    """Nobody is told to go back to an earlier one, and `restore` puts nothing aside."""
    assert bench.engine().up(lambda: declare(ONE)).ok
    retained, engine = bench.state_path.read_bytes(), bench.engine()
    with few_files(0), pytest.raises(StateBroken, match=REMEDY) as caught:
        engine.resources()
    assert not isinstance(caught.value, StateUnusable)
    assert "restore" not in str(caught.value)
    for spare in range(6):
        reported: list[str] = []
        with few_files(spare), suppress(EngineError, OSError):
            Store(bench.project.backend, "local-lb", "dev").restore(reported.append)
        assert reported == []
    assert bench.state_path.read_bytes() == retained


def test_a_living_holder_that_cannot_be_looked_at_keeps_its_lock(bench: Bench) -> None:
    """Were it called gone, two updates would change one stack at a time."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        path = lock(bench, process.pid, when=timestamp())
        holder = LockHolder(path, process.pid, "me", os.uname().nodename, timestamp())
        with few_files(0):
            assert not holder.is_removed()
    finally:
        process.communicate(b"\n")
    assert holder.is_removed()


@pytest.mark.parametrize(
    ("number", "remedy"),
    [
        (errno.ENOSPC, "make room on that disk"),
        (errno.EDQUOT, "make room within your quota"),
        (errno.EROFS, "mount it writable, or use a project elsewhere, then run again"),
        (errno.EACCES, "run this as the user whose files these are, or set the rights, then run again"),
        (errno.EMFILE, REMEDY),
        (errno.ENFILE, "end other programs"),
    ],
)
def test_unwritable_state_is_reported_with_the_remedy_for_its_cause(tmp_path: Path, number: int, remedy: str) -> None:
    """Room is no remedy for a limit, nor a right for a disk that is full."""

    def refused(_what: str) -> None:
        raise OSError(number, os.strerror(number))

    with pytest.raises(StateUnwritable) as caught:
        Files(refused).replace(tmp_path / "state.json", b"x")
    assert str(caught.value).startswith(f"{tmp_path}/state.json can't be written: {os.strerror(number)}; {remedy}")


def test_obstacle_to_writing_the_state_is_named_with_the_remedy(tmp_path: Path) -> None:
    """Running again doesn't help where a directory or a file blocks the path."""
    state, sibling = tmp_path / "dev.json", tmp_path / ".dev.json.new"
    sibling.mkdir()
    with pytest.raises(StateUnwritable) as caught:
        Files().replace(state, b"x")
    way_out = "Is a directory; move that directory elsewhere, then run again"
    assert str(caught.value) == f"{state} can't be written: {sibling}: {way_out}"
    sibling.rmdir()
    state.mkdir()
    with pytest.raises(StateUnwritable) as caught:
        Files().replace(state, b"x")
    assert str(caught.value) == f"{state} can't be written: {way_out}"
    with pytest.raises(StateUnwritable, match="file: File exists; move what stands there elsewhere"):
        Files().replace(_file(tmp_path / "file") / "backups" / "dev.json", b"x")


def _file(path: Path) -> Path:
    path.touch()
    return path


@pytest.mark.parametrize("error", [OSError(), OSError(errno.EOVERFLOW, "")])
def test_an_error_without_words_is_reported_by_its_name(tmp_path: Path, error: OSError) -> None:
    """No sentence has a hole."""

    def refused(_what: str) -> None:
        raise error

    with pytest.raises(StateUnwritable) as caught:
        Files(refused).replace(tmp_path / "state.json", b"x")
    what = "OSError" if not error.errno else str(error)
    assert str(caught.value) == f"{tmp_path}/state.json can't be written: {what}; run again once that is repaired"
    assert (str(HostRefused(error)), system_errors.refusal(error)) == (what, what)


def test_no_older_state_is_restored_for_want_of_descriptors(bench: Bench) -> None:
    """The newest backup may be good: whoever can't read it says so."""
    engine = bench.engine()
    for program in (lambda: declare(ONE), lambda: declare(spec())):
        assert engine.up(program).ok
    layout = Layout(bench.project.backend, "local-lb", "dev")
    backups = Backups(layout.backups, "dev", Files())
    newest, *_ = backups.newest_first()
    bench.state_path.write_text("{")
    content = newest.read_bytes()
    newest.unlink()
    newest.symlink_to("/proc/self/mem")  # whose first bytes give an error of input and output
    with pytest.raises(StateUnreadable, match="look after that disk"):
        restore(layout, backups, lambda _text: None)
    assert bench.state_path.read_text() == "{"
    newest.unlink()
    newest.write_bytes(content)
    restore(layout, backups, lambda _text: None)
    assert bench.state_path.read_bytes() == content


def test_a_lock_that_can_not_be_looked_for_is_not_absent(bench: Bench) -> None:
    """From Python 3.12 on `glob` finds nothing then, and two updates would change one stack at a time."""
    path = lock(bench, os.getpid(), when=timestamp())
    with few_files(0), pytest.raises(OSError, match="Too many open files"):
        list(read_holders(path.parent))
    assert [holder.path for holder in read_holders(path.parent)] == [path]
    assert not list(read_holders(path.parent / "absent"))


@pytest.mark.parametrize("spare", range(5))
def test_an_event_loop_without_a_descriptor_for_a_part_of_it_leaves_nothing(
    spare: int, capfd: pytest.CaptureFixture[str]
) -> None:
    """Neither a descriptor nor a complaint, also where another thread took the last one meanwhile."""
    gc.collect()
    before = len([*Path("/proc/self/fd").iterdir()])
    made = False
    with few_files(spare), suppress(OSError):
        new_loop().close()
        made = True
    gc.collect()
    assert made == (spare >= PARTS)
    assert len([*Path("/proc/self/fd").iterdir()]) == before
    assert capfd.readouterr().err == ""
