"""Keeps Python's collector of cycles away from what stays: state, plan and sources of a thousand Services.

It would look through all of that again and again, for a fifth of a second each time, and find that it stays. What
stays is taken out of its sight; what became garbage there all the same is found at the next full pass.
"""

from __future__ import annotations

import gc


def set_aside(*, collected: bool = True) -> None:
    """Look at all that there is now no more; before that collect what is garbage of it, unless there is no time."""
    if collected:
        gc.collect()
    gc.freeze()


def look_through() -> None:
    """Collect all that is garbage, also among what was set aside, and set aside what stays."""
    gc.unfreeze()
    set_aside()
