"""Polls a seed for changes of its shoots, or of how they are reached.

What would be watched are objects of a whole Shoot each, of which two fields count, and Secrets, one by one.
Not here: what is done about it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from locallb.kubernetes.access.kubeconfig import resolve
from locallb.model.memory import Memory
from locallb.model.pacing import Pace
from locallb.sources.gardener.entry import GardenerSource
from locallb.sources.gardener.finding import is_meant
from locallb.sources.gardener.seed import Seed, SeedContents
from locallb.sources.polling import PACE, Polls


def poll_seed(finder: GardenerSource, root: Path, changed: Callable[[str], None], pace: Pace = PACE) -> Polls:
    """Call `changed` where a seed has something different, and at first."""
    api = Memory[Seed]()

    def look() -> SeedContents:
        seed = api.of(None, Seed, resolve(finder.kubeconfig, finder.context, root))
        return seed.look(partial(is_meant, finder))

    return Polls(finder.cluster, f"{finder.cluster} shoots", look, changed, pace)
