"""What a status that we write comes to, in one word, for who counts objects.

Not here: what it says (`statuses`), and whether it stands there (`standing`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from enum import StrEnum
from functools import lru_cache
from typing import Any

from locallb.gateway.conditions import ACCEPTED, PARTIALLY_INVALID, PROGRAMMED, RESOLVED
from locallb.gateway.status_patch import ENTRIES

_MOST = 10_000
"""Statuses whose verdict is remembered."""


class Told(StrEnum):
    """What an object is told."""

    ACCEPTED = "accepted"
    PARTLY = "partly"
    """It is accepted; a listener, a rule or a reference of it isn't."""
    REFUSED = "refused"
    """By all or by one of those that it belongs to."""


@lru_cache(_MOST)
def verdict_of(status: str) -> Told:
    """Return what a status says, given as JSON."""
    said: Mapping[str, Any] = json.loads(status)
    of_object = [said, *(entry for key in ENTRIES for entry in said.get(key, ()))]
    if any(_is(one, kind, "False") for one in of_object for kind in (ACCEPTED, PROGRAMMED)):
        return Told.REFUSED
    return Told.PARTLY if any(map(_is_partly, [*of_object, *said.get("listeners", ())])) else Told.ACCEPTED


def _is_partly(one: Mapping[str, Any]) -> bool:
    wrong = any(_is(one, kind, "False") for kind in (ACCEPTED, PROGRAMMED, RESOLVED))
    return wrong or _is(one, PARTIALLY_INVALID, "True")


def _is(one: Mapping[str, Any], kind: str, status: str) -> bool:
    return any((said["type"], said["status"]) == (kind, status) for said in _conditions(one))


def _conditions(one: Mapping[str, Any]) -> Iterator[Mapping[str, str]]:
    yield from one.get("conditions", ())
