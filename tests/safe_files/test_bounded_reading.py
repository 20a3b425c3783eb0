"""Files are read up to a bound, with memory for what they have and not for what they may have; none stays open."""

from __future__ import annotations

import os
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from locallb import safe_files
from locallb.runtimes import processes
from locallb.storage import files
from locallb.storage import files as kept_files
from locallb.storage.files import FilesError
from locallb.storage.folders import ReadLimits, read_folder
from tests.support.descriptors import count_open

MIB = 1 << 20
READERS: dict[str, Callable[[Path], object]] = {
    "a directory of manifests": lambda path: read_folder(path.parent, (".yaml",), ReadLimits(32 * MIB, 256 * MIB)),
    "a file where others may write": files.find_shared,
    "a file of somebody else": lambda path: safe_files.read(path, 32 * MIB),
    "a file that is changed": lambda path: kept_files.rewrite(path, lambda text: text),
}


@pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
def test_a_small_file_takes_little_memory_to_be_read(reader: Callable[[Path], object], tmp_path: Path) -> None:
    """Whatever the bound is: of a thousand claims each took 64 MiB for a moment, and memory kept the holes."""
    path = tmp_path / "small.yaml"
    path.write_bytes(b"x: 1\n" * 100)
    reader(path)
    tracemalloc.start()
    try:
        reader(path)
        assert tracemalloc.get_traced_memory()[1] < MIB
    finally:
        tracemalloc.stop()


@given(st.binary(max_size=300), st.integers(0, 400), st.integers(1, 50))
def test_no_more_than_the_bound_is_read_of_a_file_that_grows(content: bytes, maximum: int, grown: int) -> None:
    """Also what came after its size was looked at, and what a file system gives in small pieces."""
    reading, writing = os.pipe()
    with os.fdopen(writing, "wb") as stream:  # its size is 0, and it has more
        stream.write(content * grown)
    with os.fdopen(reading, "rb") as stream:
        assert safe_files.read_up_to(stream.fileno(), maximum) == (content * grown)[:maximum]


@pytest.mark.parametrize(
    "reader",
    [files.read, *READERS.values(), processes.last_output],
    ids=["a file of ours", *READERS, "a log"],
)
@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo], ids=["directory", "pipe"])
def test_what_is_no_file_does_not_stay_open(
    reader: Callable[[Path], object], make: Callable[[Path], object], tmp_path: Path
) -> None:
    """A loop that reads it again and again would have no descriptor left at last."""
    path = tmp_path / "it.yaml"
    make(path)
    for _ in range(3):
        with suppress(OSError, FilesError):
            reader(path)
    assert count_open(path) == 0
