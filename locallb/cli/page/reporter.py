"""The live page's own event reporter, with its own relay, so that a blocked terminal doesn't block the page."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from locallb.cli.page.live import LivePage
from locallb.cli.watching.log.log_record import LogRecord
from locallb.cli.watching.relay import Relay
from locallb.cli.watching.reporting import EventReporter
from locallb.cli.watching.supervision import stuck
from locallb.planning.status import Observation
from locallb.watch.events import LoopEvent, Pulse

_LAST_OUTPUT = 0.5
"""Seconds in which the page can receive the final event."""


class PageReporter:
    """Listens from the beginning. Raises HttpServerError. `listen` and `poke` may be called from any thread."""

    def __init__(
        self,
        place: str,
        stack: str,
        observed: Callable[[], Mapping[str, Observation | None]],
        pulse: Callable[[], Pulse],
    ) -> None:
        self._page = LivePage(place, stack, lambda: stuck(pulse(), time.monotonic()))
        self._relay = Relay()
        self._teller = EventReporter(self._relay, self._page, observed, lambda _error: None)
        self.url = self._page.url
        """Where it is."""
        self.listen: Callable[[LoopEvent], None] = self._relay.listen
        self.poke = self._relay.poke

    def start(self, *first: LogRecord) -> None:
        """Begin to answer."""
        self._teller.start(*first)

    def close(self) -> None:
        """Tell readers that it ends, and end."""
        self._teller.join(_LAST_OUTPUT if self._page.is_read else 0.0)
        self._teller.close()
