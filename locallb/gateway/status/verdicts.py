"""Summaries of a status that we write: one verdict for counting, and its new refusals for events.

Not here: the status itself (`statuses`), and the observed one (`observed`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from enum import StrEnum
from functools import lru_cache

from locallb.gateway.conditions import ACCEPTED, PARTIALLY_INVALID, PROGRAMMED, RESOLVED
from locallb.gateway.status.patch import ENTRIES, Status, is_ours
from locallb.model.fields import JsonObject

_MAX = 10_000
"""Limit of statuses with a cached verdict."""


class Verdict(StrEnum):
    """The overall result in an object's status."""

    ACCEPTED = "accepted"
    PARTLY = "partly"
    """It is accepted; a listener, a rule or a reference of it isn't."""
    REFUSED = "refused"
    """An entry of it is not accepted or not programmed."""


@lru_cache(_MAX)  # to parse a text takes long, and whoever shows statuses comes with the same ones again
def verdict_of(status: str) -> Verdict:
    """Return the overall result of a status, given as JSON."""
    stated: JsonObject = json.loads(status)
    of_object = _entries(stated)
    if any(_is(entry, kind, "False") for entry in of_object for kind in (ACCEPTED, PROGRAMMED)):
        return Verdict.REFUSED
    return Verdict.PARTLY if any(map(_is_partly, [*of_object, *stated.get("listeners", ())])) else Verdict.ACCEPTED


def _is_partly(entry: JsonObject) -> bool:
    wrong = any(_is(entry, kind, "False") for kind in (ACCEPTED, PROGRAMMED, RESOLVED))
    return wrong or _is(entry, PARTIALLY_INVALID, "True")


def _is(entry: JsonObject, kind: str, status: str) -> bool:
    return any((stated["type"], stated["status"]) == (kind, status) for stated in _conditions(entry))


def _conditions(entry: JsonObject) -> Iterator[Mapping[str, str]]:
    yield from entry.get("conditions", ())


def bad_news(before: Status, wanted: Status) -> tuple[tuple[str, str], ...]:
    """Return reason and sentence of all new refusals, each once; `before` is the earlier status."""
    existing = frozenset(_refused(before))
    return tuple(dict.fromkeys(refusal for refusal in _refused(wanted) if refusal not in existing))


def _refused(status: Status) -> Iterator[tuple[str, str]]:
    for entry in (*filter(_may_be_ours, _entries(status)), *(status.get("listeners") or ())):
        of = f"listener {entry['name']}: " if "name" in entry else ""
        for stated in entry.get("conditions") or ():
            kind, is_true = stated.get("type"), stated.get("status")
            if (kind in _WANTED and is_true == "False") or (kind == PARTIALLY_INVALID and is_true == "True"):
                yield str(stated.get("reason")), f"{of}{stated.get('message')}"


_WANTED = frozenset({ACCEPTED, PROGRAMMED, RESOLVED})


def _entries(status: Status) -> list[Status]:
    """Return whatever has conditions of the whole object."""
    return [status, *(entry for key in ENTRIES for entry in status.get(key) or ())]


def _may_be_ours(entry: Status) -> bool:
    return "controllerName" not in entry or is_ours(entry)
