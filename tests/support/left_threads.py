"""A fixture that finds tests which leave threads: each test below a conftest that imports it has it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from collections.abc import Set as AbstractSet

import pytest

ANSWERING = "process_request_thread"
"""In the names of threads in which a test's own HTTP server answers: each ends with its client's connection."""
SECONDS = 30.0
"""For what is told to end."""


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    """Require that whatever a test starts ends with it."""
    before = {*threading.enumerate()}
    yield
    deadline = time.monotonic() + SECONDS
    while (left := _started_since(before)) and time.monotonic() < deadline:
        left[0].join(0.1)
    assert not left, f"threads are left: {', '.join(sorted(thread.name for thread in left))}"


def _started_since(before: AbstractSet[threading.Thread]) -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each not in before and ANSWERING not in each.name]
