"""What all tests of the loop have in common."""

from __future__ import annotations

from tests.support.left_threads import no_thread_is_left

__all__ = ["no_thread_is_left"]
