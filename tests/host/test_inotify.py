"""inotify instances: counted exactly, and missed before Envoy aborts."""

from __future__ import annotations

import pytest

from locallb.host import inotify
from locallb.host.inotify import InotifyError
from tests.descriptors import few_files

MORE_THAN_ANY = 100_000


@pytest.fixture
def limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pretend that three instances are left."""
    real = inotify.available
    monkeypatch.setattr(inotify, "available", lambda wanted: min(3, real(min(wanted, 3))))


def test_counting_inotify_instances_keeps_none() -> None:
    """Asking twice gives the same: nothing is kept."""
    assert inotify.available(0) == 0
    assert inotify.available(1) == inotify.available(1)


@pytest.mark.usefixtures("limit")
def test_too_few_are_reported_with_numbers_and_remedy() -> None:
    """Who needs how many, how many there are, what helps."""
    with pytest.raises(
        InotifyError, match=r"proxy x needs 100000 inotify instances, but this user has \d+ left of \d+: end"
    ):
        inotify.require(MORE_THAN_ANY, "proxy x")


def test_descriptors_that_are_wanting_are_not_taken_for_instances() -> None:
    """By one error the kernel tells of both, and another limit is to be raised."""
    with few_files(1), pytest.raises(InotifyError, match="Too many open files; raise the limit of open files"):
        inotify.require(2, "proxy x")
    with few_files(1):
        assert inotify.available(1) == 1
