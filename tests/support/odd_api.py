"""What the soak lets an API answer: rubbish, watches that close at once, and that it has forgotten everything."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import Any

from tests.support.faulty_api import FaultyApi

LISTS, WATCHES = r"^GET .*[?&]limit=", r"^GET .*[?&]watch=true"
FOR_EVER = 1_000_000
MAX = 20
"""Requests that reach the API in any second while nobody changes a Service, whatever they are."""
RUBBISH = ("{}", "[]", "null", "<html>log in first</html>", '{"metadata": null, "items": ["x"]}', '{"kind": "PodList"}')
LINES = ("hello\n", "[]\n", '{"type": "ADDED"}\n', '{"type": "ERROR"}\n', '{"type": "RENAMED", "object": {}}\n')


class Answers:
    """Faults of an API that lies between local-lb and the real one; each lasts until `end`."""

    def __init__(self, api: FaultyApi, chance: Random) -> None:
        self._api = api
        self._chance = chance

    @property
    def kinds(self) -> Mapping[str, Callable[[], None]]:
        return {
            "rubbish in lists": self.rubbish_in_lists,
            "rubbish in watches": self.rubbish_in_watches,
            "watches that close at once": self.watches_that_close_at_once,
            "gone": self.removed,
        }

    def rubbish_in_lists(self) -> None:
        """Answer lists with what isn't one; watches are gone, so that lists are asked for."""
        self._always(WATCHES, status=410)
        self._always(LISTS, status=200, body=self._chance.choice(RUBBISH))

    def rubbish_in_watches(self) -> None:
        """Say in watches what no API says."""
        self._always(WATCHES, status=200, body=self._chance.choice(LINES))

    def watches_that_close_at_once(self) -> None:
        self._always(WATCHES, status=200, empty=True)

    def removed(self) -> None:
        """Have forgotten what was since any version."""
        self._always(WATCHES, status=410)

    def end(self) -> None:
        self._api.heal()

    def check(self) -> None:
        """See that the API was never asked too often."""
        busiest = self._api.busiest()
        assert len(busiest) <= MAX, busiest

    def _always(self, line: str, **what: Any) -> None:  # noqa: ANN401 - fields of a fault
        self._api.inject(line, FOR_EVER, **what)
