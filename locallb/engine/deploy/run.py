"""The context of one run of the engine."""

from msgspec import Struct

from locallb.engine.backend.store import Recorder
from locallb.engine.deploy.interrupts import Stop
from locallb.engine.deploy.provider_resources import ProviderResources
from locallb.engine.deploy.reporter import Reporter
from locallb.engine.deploy.scope import Scope
from locallb.engine.state.errors import Cancelled


class Run(Struct, frozen=True):
    """One preview, update, refresh, look or destruction."""

    reporter: Reporter
    recorder: Recorder
    providers: ProviderResources
    scope: Scope
    parallel: int
    """Operations that may be under way at a time."""
    stop: Stop
    is_preview: bool

    def go_on(self) -> None:
        """Raise Cancelled after an interrupt."""
        if self.stop.is_requested():
            raise Cancelled
