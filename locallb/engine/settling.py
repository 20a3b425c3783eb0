"""Resolves operations that an earlier run began and didn't end, before anything else is decided.

A creation is run again with the inputs that were recorded: providers take over what they made for the same owner, so
the resource gets into the state and is then kept, changed or deleted like any other. An update or deletion is resolved
by reading the resource. (The official command line keeps creations pending until the user clears them.)
"""

from collections.abc import Callable
from dataclasses import dataclass

from locallb.engine.errors import StepError, Unsupported
from locallb.engine.events import Severity
from locallb.engine.provider_resources import ProviderResources
from locallb.engine.refreshing import Refresher
from locallb.engine.resource import Pending
from locallb.engine.snapshot import End
from locallb.engine.steps import Steps


@dataclass(frozen=True)
class Settler:
    """Resolves the pending operations of those resources for which `concerns` holds, by URN, and `kinds`, by kind."""

    steps: Steps
    providers: ProviderResources
    refresher: Refresher
    concerns: Callable[[str], bool]
    kinds: Callable[[str], bool]

    def settle(self) -> None:
        """Resolve them, in the order in which they began."""
        snapshot = self.steps.recorder.snapshot
        for number, operation in sorted(snapshot.pending.items()):
            if self.kinds(operation.kind) and self._concerns(operation):
                if operation.kind == "creating":
                    self._create_again(number, operation)
                else:
                    self._look(number, operation)

    def _concerns(self, operation: Pending) -> bool:
        resource = operation.resource
        known = resource.urn in self.steps.recorder.snapshot.live or not resource.parent
        return self.concerns(resource.urn if known else resource.parent)

    def _create_again(self, number: int, operation: Pending) -> None:
        resource = operation.resource
        reporter = self.steps.reporter
        try:
            handle = self.providers.handle_of(resource)
            self.steps.finish_creation(number, resource, handle)
        except (StepError, Unsupported) as error:
            self.steps.recorder.apply(End(number))
            reporter.say(
                Severity.WARNING,
                f"the interrupted creation of {resource.urn} can't be finished ({error}); taken as not happened",
                resource.urn,
            )
        else:
            reporter.say(Severity.INFO, f"finished the interrupted creation of {resource.urn}", resource.urn)

    def _look(self, number: int, operation: Pending) -> None:
        live = self.steps.recorder.snapshot.live.get(operation.resource.urn)
        if live is not None and live.id == (operation.resource.id or live.id):
            self.refresher.refresh([live])
        self.steps.recorder.apply(End(number))
        urn = operation.resource.urn
        self.steps.reporter.say(Severity.INFO, f"looked at {urn}, whose {operation.kind} was interrupted", urn)
