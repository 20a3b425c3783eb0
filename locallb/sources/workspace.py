"""A stack of this host, read and planned: the one way from its configuration to a plan.

For the program and for commands, which read everything once. The loop reads what was marked and plans with a memory
(`watch.planner`), to the same plan. Not here: the configuration itself, and what becomes of a plan.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from locallb.config.settings import Settings
from locallb.model.identities import Home
from locallb.planning.plan import make_plan
from locallb.planning.planned import Plan
from locallb.sources.snapshot import SnapshotResult, read_snapshot


@dataclass(frozen=True, slots=True)
class Workspace:
    """Which stack it is, how it is configured, and where its state is (None where another engine keeps it)."""

    home: Home
    settings: Settings
    state: Path | None

    def read_and_plan(self, *, keep: bool) -> tuple[SnapshotResult, Plan]:
        """Return what was read and the plan made of it; `keep` remembers it for a time when it can't be read.

        Raises:
            SourceError: if a source can't be read and there is nothing to go by instead.
            ClientError: if the host or the ledger can't be read.

        """
        result = read_snapshot(self.home, self.settings, self.state, keep=keep)
        return result, make_plan(result.snapshot, self.settings)
