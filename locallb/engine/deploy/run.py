"""The context of one run of the engine, and the steps that every kind of run shares.

Not here: which parts a run has (`engine.engine`).
"""

from concurrent.futures import ThreadPoolExecutor

from msgspec import Struct

from locallb.engine.deploy.deletion import Deleter
from locallb.engine.deploy.provider_resources import ProviderResources
from locallb.engine.deploy.reporter import Reporter
from locallb.engine.deploy.scope import Scope
from locallb.engine.deploy.settling import Settler
from locallb.engine.deploy.steps import Steps
from locallb.engine.deploy.unwanted import Unwanted


class Run(Struct, frozen=True):
    """One preview, update, refresh, look or destruction."""

    reporter: Reporter
    steps: Steps
    providers: ProviderResources
    scope: Scope
    parallel: int
    """Operations that may be under way at a time."""
    crew: ThreadPoolExecutor
    """Threads that outlive the run."""

    def settle(self) -> frozenset[str]:
        """Find out what operations that were broken off came to; return those (URNs) whose outcome is unknown."""
        if self.steps.preview:
            return frozenset()
        unsettled = Settler(self.steps, self.providers, self.scope.covers).settle()
        self.reporter.broken |= set(unsettled.values())
        return frozenset(unsettled)

    def delete(self, unwanted: Unwanted) -> None:
        """Delete what isn't declared any more, and what was replaced."""
        if unwanted.live or unwanted.old_instances:
            Deleter(self.steps, self.providers, self.crew).delete(unwanted.live, unwanted.old_instances)
