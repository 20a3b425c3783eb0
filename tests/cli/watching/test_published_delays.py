"""The file of a watch's delays: what can't be written or read of it stops nobody."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from locallb.cli.watching.published_delays import DelaysFile, read_delays
from locallb.model.identities import ClusterName, ObjectKey
from locallb.watch.delays import Delay
from locallb.watch.events import Delayed, Stopped

DELAY = Delay("cluster", "cluster c", 1.0, (ObjectKey(ClusterName("c"), "n", "web"),))


def test_delays_are_read_until_they_end(tmp_path: Path) -> None:
    """By any process, as long as the one that wrote them runs."""
    path = tmp_path / "dev.delays"
    published = DelaysFile(path)
    published.listen(Delayed((DELAY,)))
    assert read_delays(path) == (DELAY,)
    published.listen(Stopped())
    assert read_delays(path) == ()


def test_a_file_that_cannot_be_written_ends_no_loop(tmp_path: Path) -> None:
    """As on a full disk: here its directory is a file."""
    (tmp_path / "file").write_text("")
    path = tmp_path / "file" / "dev.delays"
    DelaysFile(path).listen(Delayed((DELAY,)))
    DelaysFile(path).listen(Stopped())


@pytest.mark.parametrize(
    "spoil",
    [
        Path.mkdir,
        lambda path: path.write_bytes(b"\xff"),
        lambda path: path.write_text("{"),
        lambda path: path.write_text("{}"),
    ],
    ids=["directory", "no text", "half", "other"],
)
def test_a_file_that_cannot_be_read_says_nothing(tmp_path: Path, spoil: Callable[[Path], object]) -> None:
    """A status goes on without it."""
    path = tmp_path / "dev.delays"
    spoil(path)
    assert read_delays(path) == ()
