"""Directories that are lent for a while."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from locallb.model.system_errors import refusal
from locallb.storage.files import FilesError


@contextmanager
def scratch(what: str) -> Iterator[Path]:
    """Lend a directory for `what`, which is gone afterwards. Raises FilesError for what can't be written there."""
    made = ""
    try:
        with tempfile.TemporaryDirectory(prefix="locallb-") as made:
            yield Path(made)
    except OSError as error:
        if error.filename and made and not str(error.filename).startswith(made):
            raise
        where = f" to {tempfile.tempdir}" if tempfile.tempdir else ""
        remedy = "or name another directory in TMPDIR"
        raise FilesError(f"{what} can't be written{where}: {refusal(error)}; {remedy}") from error
