"""What the loop sees and what it makes of it: the configuration as last read, the world that it names, the plan.

Not here: when to look (`schedule`), and what of the plan isn't so yet (`converge`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from locallb.config.settings import Settings
from locallb.engine import Engine
from locallb.model.identities import Home
from locallb.model.memory import Memory
from locallb.model.snapshot import Snapshot
from locallb.planning.memory import PlanMemory
from locallb.planning.plan import make_plan
from locallb.planning.planned import Plan
from locallb.planning.withdrawal import withdraw
from locallb.watch.events import Mark
from locallb.watch.snapshot_cache import SnapshotCache


@dataclass(slots=True)
class Planner:
    """For one thread. `load` reads the configuration; `mark` is for whatever the world is followed by."""

    home: Home
    engine: Engine
    load: Callable[[], Settings]
    mark: Callable[[Mark], None]
    _world: SnapshotCache | None = None
    _planned: Memory[Plan] = field(default_factory=Memory)
    _told: Memory[Plan] = field(default_factory=Memory)
    _memory: PlanMemory = field(default_factory=PlanMemory)

    @property
    def is_open(self) -> bool:
        """Whether the configuration could be read at least once."""
        return self._world is not None

    @property
    def world(self) -> SnapshotCache:
        """The world as configured; for who has opened it."""
        if self._world is None:
            raise AssertionError
        return self._world

    @property
    def settings(self) -> Settings:
        """The configuration as last read."""
        return self.world.settings

    def open(self) -> None:
        """Read the configuration; another one means another world, where clusters that stay are followed on.

        Raises what `load` does.
        """
        settings = self.load()
        if self._world is None or self._world.settings != settings:
            followed = self._world.following if self._world else {}
            self._world = SnapshotCache(self.home, settings, self.engine, self.mark, following=followed)

    def plan(self, snapshot: Snapshot, down: frozenset[str]) -> Plan:
        """Plan while these proxies can't be brought back; what was planned just before is as it was."""
        plan = self._planned.of(None, partial(make_plan, memory=self._memory), snapshot, self.settings)
        return self._told.of(None, withdraw, plan, down)

    def stop(self) -> None:
        """Follow nothing any more."""
        if self._world:
            self._world.stop()
