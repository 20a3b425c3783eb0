"""Files are read up to a bound, and memory is taken for what they have, not for what they may have."""

from __future__ import annotations

import os
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from locallb.storage import files, foreign_files, kept_files
from locallb.storage.folders import Limits, read_folder

MIB = 1 << 20
READERS: dict[str, Callable[[Path], object]] = {
    "a directory of manifests": lambda path: read_folder(path.parent, (".yaml",), Limits(32 * MIB, 256 * MIB)),
    "a file where others may write": files.find_shared,
    "a file of somebody else": lambda path: foreign_files.read(path, 32 * MIB),
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
def test_no_more_than_the_bound_is_read_of_a_file_that_grows(content: bytes, most: int, grown: int) -> None:
    """Also what came after its size was looked at, and what a file system gives in small pieces."""
    reading, writing = os.pipe()
    with os.fdopen(writing, "wb") as stream:  # its size is 0, and it has more
        stream.write(content * grown)
    with os.fdopen(reading, "rb") as stream:
        assert foreign_files.read_up_to(stream.fileno(), most) == (content * grown)[:most]
