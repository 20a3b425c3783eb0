"""A seed of Gardener as a finder: its objects say which shoots there are and how they are reached."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from locallb.model.memory import Memo
from locallb.model.pacing import Pace
from locallb.sources.consents import allowed
from locallb.sources.gardener.entry import GardenerSource
from locallb.sources.gardener.finding import find_shoots, is_selected
from locallb.sources.gardener.seed import Seed, SeedContents
from locallb.sources.kubernetes.entry import KubernetesSource
from locallb.sources.polling import PACE, Polls
from locallb.sources.source import FinderType, Found


class Gardener(FinderType[GardenerSource]):
    """The seed is asked, again and again while it is watched."""

    def find(self, finder: GardenerSource, root: Path, directory: Path, *, keep: bool) -> Found[KubernetesSource]:
        """Find the seed and its shoots."""
        return find_shoots(finder, root, directory, keep=keep)

    def watch(self, finder: GardenerSource, root: Path, changed: Callable[[str], None], pace: Pace = PACE) -> Polls:
        """Poll every few seconds whether seed, shoots or credentials changed, and at first.

        What would be watched are objects of a whole Shoot each, of which two fields count, and Secrets, one by one.
        """
        api = Memo[Seed]()

        def inspect() -> SeedContents:
            seed = api.of(None, Seed, allowed(finder, root))
            return seed.inspect(partial(is_selected, finder))

        return Polls(finder.cluster, f"{finder.cluster} shoots", inspect, changed, pace)


SOURCE = Gardener()
