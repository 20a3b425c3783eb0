"""A host that gives no descriptor: told with what helps, no state is called broken, no lock of the living is taken."""

import errno
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from locallb.engine.backend.locks import Holder
from locallb.engine.backend.store import Store
from locallb.engine.state.checkpoint import check_state, timestamp
from locallb.engine.state.errors import EngineError, StateBroken, StateUnusable, StateUnwritable
from locallb.engine.state.files import Files
from tests.descriptors import few_files
from tests.engine.balancers import ONE, declare, spec
from tests.engine.support import Bench
from tests.engine.test_locks import lock

SOME, ENOUGH = 7, 20
"""Descriptors with which an update can't end well, and with which it must."""
REMEDY = "raise the limit of open files"


@pytest.mark.parametrize("spare", range(ENOUGH + 1))
def test_an_update_that_gets_few_descriptors_is_told_and_finished_by_the_next(
    bench: Bench, spare: int, capfd: pytest.CaptureFixture[str]
) -> None:
    """However far it comes: sentences with the remedy, a sound state, nothing but them on standard error."""
    assert bench.engine().up(lambda: declare(ONE)).ok
    engine = bench.engine()
    with few_files(spare):
        try:
            told = [told.message for told in engine.up(lambda: declare(spec())).diagnostics]
        except EngineError as error:
            told = [str(error)]
    assert all(REMEDY in sentence for sentence in told)
    assert told or spare >= SOME
    assert not told or spare < ENOUGH
    assert capfd.readouterr().err == ""
    assert check_state(bench.state_path) == ()
    assert bench.engine().up(lambda: declare(spec())).ok
    assert bench.engine().up(lambda: declare(spec())).unchanged


def test_a_state_that_cannot_be_opened_is_as_good_as_ever(bench: Bench) -> None:
    """Nobody is told to go back to an earlier one, and `restore` puts nothing aside."""
    assert bench.engine().up(lambda: declare(ONE)).ok
    kept, engine = bench.state_path.read_bytes(), bench.engine()
    with few_files(0), pytest.raises(StateBroken, match=REMEDY) as caught:
        engine.resources()
    assert not isinstance(caught.value, StateUnusable)
    assert "restore" not in str(caught.value)
    for spare in range(6):
        told: list[str] = []
        with few_files(spare), suppress(EngineError, OSError):
            Store(bench.project.backend, "local-lb", "dev").restore(told.append)
        assert told == []
    assert bench.state_path.read_bytes() == kept


def test_a_living_holder_that_cannot_be_looked_at_keeps_its_lock(bench: Bench) -> None:
    """Were it called gone, two updates would change one stack at a time."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        path = lock(bench, process.pid, when=timestamp())
        holder = Holder(path, process.pid, "me", os.uname().nodename, timestamp())
        with few_files(0):
            assert not holder.is_gone()
    finally:
        process.communicate(b"\n")
    assert holder.is_gone()


@pytest.mark.parametrize(
    ("number", "remedy"),
    [
        (errno.ENOSPC, "make room on that disk"),
        (errno.EDQUOT, "make room within your quota"),
        (errno.EROFS, "mount it writable"),
        (errno.EACCES, "give this user the right"),
        (errno.EMFILE, REMEDY),
        (errno.ENFILE, "end other programs"),
    ],
)
def test_unwritable_state_is_reported_with_the_remedy_for_its_cause(tmp_path: Path, number: int, remedy: str) -> None:
    """Room is no remedy for a limit, nor a right for a disk that is full."""

    def refused(_what: str) -> None:
        raise OSError(number, os.strerror(number))

    with pytest.raises(StateUnwritable) as caught:
        Files(refused).replace(tmp_path / "state.json", [b"x"])
    assert str(caught.value).startswith(f"{tmp_path}/state.json can't be written: {os.strerror(number)}; {remedy}")
