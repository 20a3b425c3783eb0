"""Garbage collector tuning: long-lived objects (state, plan, sources of a thousand Services) are frozen.

It would look through all of that again and again, for a fifth of a second each time, and find that it stays. What
stays is taken out of its sight; what became garbage there all the same is found at the next full pass.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_SELDOM = 20_000
"""Objects that come before the collector looks at what is new. With Python's own 700 it does so twice for each event,
and goes through all tables that the event made: with 5,000 Services 5 ms."""


@contextmanager
def filling() -> Iterator[None]:
    """Collect nothing while memory is filled with what nearly all stays; afterwards look at that no more.

    From then on it is only looked at what is new once that is much.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
    gc.freeze()
    gc.set_threshold(_SELDOM, *gc.get_threshold()[1:])


def set_aside() -> None:
    """Collect what is garbage, and look at all that stays no more."""
    gc.collect()
    gc.freeze()


def collect_all() -> None:
    """Collect all that is garbage, also among what was set aside, and set aside what stays."""
    gc.unfreeze()
    set_aside()
