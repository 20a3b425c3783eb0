"""Ends of processes are told, each once, also of those that couldn't be followed at first."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Callable, Iterator

import pytest

from locallb.runtimes import process_runtime, processes
from locallb.runtimes.process_runtime import Exits
from locallb.runtimes.processes import Process
from tests.support.descriptors import few_files
from tests.support.waiting import becomes


@pytest.fixture
def reported() -> list[str]:
    """Return the names of those that ended."""
    return []


@pytest.fixture
def followed(reported: list[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Exits]:
    monkeypatch.setattr(process_runtime, "RETRY_DELAY", 0.01)
    made = Exits(reported.append)
    yield made
    made.stop()


@pytest.fixture
def start() -> Iterator[Callable[[], tuple[subprocess.Popen[bytes], Process]]]:
    started: list[subprocess.Popen[bytes]] = []

    def begin() -> tuple[subprocess.Popen[bytes], Process]:
        started.append(subprocess.Popen(("sleep", "1000")))
        process = processes.identify(started[-1].pid)
        assert process
        return started[-1], process

    yield begin
    for one in started:
        one.kill()
        one.wait()


Start = Callable[[], tuple[subprocess.Popen[bytes], Process]]


def test_an_end_is_reported_once(followed: Exits, reported: list[str], start: Start) -> None:
    """And nobody else's."""
    (first, one), (_, other) = start(), start()
    followed.follow({one: "a", other: "b"})
    first.kill()
    becomes(lambda: reported == ["a"])
    followed.follow({other: "b"})
    assert reported == ["a"]


def test_process_without_a_free_descriptor_is_followed_later(
    followed: Exits, reported: list[str], start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise its end would go unnoticed until something else changes."""
    (begun, one), tried = start(), [0]
    opened = os.pidfd_open

    def lacking(pid: int) -> int:
        tried[0] += 1
        if tried[0] < 3:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return opened(pid)

    monkeypatch.setattr(os, "pidfd_open", lacking)
    followed.follow({one: "a"})
    assert reported == []
    becomes(lambda: tried[0] == 3)
    begun.kill()
    becomes(lambda: reported == ["a"])


def test_exit_before_following_is_reported_by_the_next_try(
    followed: Exits, reported: list[str], start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once, by the next try."""
    begun, one = start()

    def lacking(_pid: int) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(os, "pidfd_open", lacking)
    followed.follow({one: "a"})
    begun.kill()
    becomes(lambda: reported == ["a"])
    followed.follow({})
    assert reported == ["a"]


def test_process_that_cannot_be_examined_does_not_count_as_ended(
    followed: Exits, reported: list[str], start: Start
) -> None:
    """With no descriptor left it would be replaced while it serves."""
    begun, one = start()
    with few_files(0):
        followed.follow({one: "a"})
        assert reported == []
    begun.kill()
    becomes(lambda: reported == ["a"])


def test_unfollowed_process_is_not_reported(
    followed: Exits, reported: list[str], start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where it couldn't be followed."""
    (begun, one), (_, other) = start(), start()
    with monkeypatch.context() as patch:
        patch.setattr(os, "pidfd_open", lambda _pid: (_ for _ in ()).throw(OSError(errno.EMFILE, "no")))
        followed.follow({one: "a"})
    followed.follow({other: "b"})
    begun.kill()
    begun.wait()
    followed.follow({other: "b"})
    assert reported == []
