"""Where the terminal view is tested."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest


@pytest.fixture
def same_places(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have the same time zone, state home and curl command wherever this runs."""
    monkeypatch.setenv("TZ", "UTC")
    monkeypatch.setenv("XDG_STATE_HOME", "/home/user/.local/state")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()
