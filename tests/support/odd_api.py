"""What the soak lets an API answer: rubbish, watches that end at once, lost versions; and answers that no API gives."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from random import Random
from typing import Any

from tests.support.faulty_api import FaultyApi

GOOD = b'{"kind": "NodeList", "metadata": {"resourceVersion": "1"}, "items": []}'
ENDLESS = "no page after this one"
"""It is odd only when it comes again."""


def listing(**fields: object) -> bytes:
    return json.dumps({**json.loads(GOOD), **fields}).encode()


ODD_LISTS: dict[str, bytes] = {
    "nothing": b"",
    "no JSON": b"<html>log in first</html>",
    "a number": b"7",
    "null": b"null",
    "an object": b"{}",
    "a list": b"[]",
    "cut": b'{"kind": "NodeList", "ite',
    "no metadata": json.dumps({"items": []}).encode(),
    "null metadata": listing(metadata=None),
    "metadata as a text": listing(metadata="x"),
    "no version": listing(metadata={}),
    "a version that is none": listing(metadata={"resourceVersion": 1}),
    "no items": json.dumps({"metadata": {"resourceVersion": "1"}}).encode(),
    "items as a text": listing(items="x"),
    "an item as a text": listing(items=["x"]),
    "an item that is null": listing(items=[None]),
    "an item without metadata": listing(items=[{}]),
    "an item with null metadata": listing(items=[{"metadata": None}]),
    "an item without a name": listing(items=[{"metadata": {}}]),
    "an item with a list for a name": listing(items=[{"metadata": {"name": []}}]),
    "an item of another kind": listing(items=[{"kind": "Pod", "metadata": {"name": "x"}}]),
    "another list": listing(kind="PodList"),
    "a status": json.dumps({"kind": "Status", "metadata": {}, "status": "Success"}).encode(),
    ENDLESS: listing(metadata={"resourceVersion": "1", "continue": "x"}),
    "a page that is no text": listing(metadata={"resourceVersion": "1", "continue": 7}),
    "too deep": b"[" * 100_000,
    "a number that is too long": b'{"metadata": {"resourceVersion": ' + b"1" * 10_000 + b"}}",
    "no UTF-8": b"\xff\xfe\xfa",
}
NAMED = {"metadata": {"name": "x", "resourceVersion": "2"}}


def line(sort: object, about: object) -> bytes:
    return json.dumps({"type": sort, "object": about}).encode() + b"\n"


ODD_WATCHES: dict[str, bytes] = {
    "no JSON": b"hello\n",
    "an empty line": b"\n",
    "an array": b"[]\n",
    "null": b"null\n",
    "cut": b'{"type": "ADD',
    "no type": json.dumps({"object": NAMED}).encode() + b"\n",
    "an unknown type": line("RENAMED", NAMED),
    "a type that is a list": line([], NAMED),
    "no object": json.dumps({"type": "ADDED"}).encode() + b"\n",
    "an object that is a text": line("ADDED", "x"),
    "an error without an object": b'{"type": "ERROR"}\n',
    "an error that is a text": line("ERROR", "x"),
    "an error": line("ERROR", {"code": 500, "message": "no"}),
    "no metadata": line("MODIFIED", {}),
    "null metadata": line("DELETED", {"metadata": None}),
    "no version": line("ADDED", {"metadata": {"name": "x"}}),
    "no name": line("ADDED", {"metadata": {"resourceVersion": "2"}}),
    "another kind": line("ADDED", {**NAMED, "kind": "Pod"}),
    "a bookmark without a version": line("BOOKMARK", {"metadata": {}}),
    "too deep": b"[" * 100_000 + b"\n",
    "no UTF-8": b"\xff\xfe\xfa\n",
}


def odd_page(token: str) -> bytes:
    """Write an empty page of a list that names the next one."""
    return json.dumps({"metadata": {"resourceVersion": "1", "continue": token}, "items": []}).encode()


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
