"""inotify instances: counted exactly, and missed before Envoy aborts."""

from __future__ import annotations

import ctypes
import os

import pytest

from locallb.host import limits as inotify
from locallb.host.limits import InotifyError, inotify_holders
from tests.support.descriptors import few_files

MORE_THAN_ANY = 100_000


@pytest.fixture
def limit(monkeypatch: pytest.MonkeyPatch) -> None:
    real = inotify.available
    monkeypatch.setattr(inotify, "available", lambda wanted: min(3, real(min(wanted, 3))))


def test_counting_inotify_instances_keeps_none() -> None:
    """Asking twice gives the same: nothing is kept."""
    assert inotify.available(0) == 0
    assert inotify.available(1) == inotify.available(1)


@pytest.mark.usefixtures("limit")
def test_too_few_are_reported_with_numbers_and_remedy() -> None:
    """The proxy and its need, what is left, the processes that have the most, what helps."""
    descriptor = ctypes.CDLL(None).inotify_init1(os.O_CLOEXEC)
    needed = r"proxy x needs 100000 inotify instances, but this user has \d+ left of \d+"
    try:
        with pytest.raises(InotifyError, match=rf"{needed} \(\d+ are of .+ \(\d+\)\): end"):
            inotify.require(MORE_THAN_ANY, "proxy x")
        holders = inotify_holders()
        assert [count >= 1 for count, name in holders if name.endswith(f"({os.getpid()})")] == [True]
    finally:
        os.close(descriptor)
    assert [count for count, _ in holders] == sorted((count for count, _ in holders), reverse=True)


def test_descriptors_that_are_wanting_are_not_taken_for_instances() -> None:
    """By one error the kernel tells of both, and another limit is to be raised."""
    with few_files(1), pytest.raises(InotifyError, match="Too many open files; raise the limit of open files"):
        inotify.require(2, "proxy x")
    with few_files(1):
        assert inotify.available(1) == 1
