"""A seed of Gardener as a finder: its objects say which shoots there are and how they are reached."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from locallb.sources.gardener.entry import GardenerSource
from locallb.sources.gardener.finding import find_shoots
from locallb.sources.gardener.polling import poll_seed
from locallb.sources.kubernetes.entry import KubernetesSource
from locallb.sources.polling import Polls
from locallb.sources.source import FinderType, Found


class Gardener(FinderType[GardenerSource]):
    """The seed is asked, again and again while it is watched."""

    def find(self, finder: GardenerSource, root: Path, directory: Path, *, keep: bool) -> Found[KubernetesSource]:
        """Find the seed and its shoots."""
        return find_shoots(finder, root, directory, keep=keep)

    def watch(self, finder: GardenerSource, root: Path, changed: Callable[[str], None]) -> Polls:
        """Poll every few seconds whether seed, shoots or credentials changed."""
        return poll_seed(finder, root, changed)


SOURCE = Gardener()
