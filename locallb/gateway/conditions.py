"""Conditions as Gateway API names them: types, reasons, and how a verdict becomes them. Not here: the decisions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from msgspec.structs import asdict

from locallb.model.fields import JsonObject
from locallb.model.identities import KEY_PREFIX
from locallb.model.reasons import Condition, Reason

ACCEPTED, PROGRAMMED, RESOLVED = "Accepted", "Programmed", "ResolvedRefs"
CONFLICTED, PARTIALLY_INVALID, OVERLAPPING_TLS = "Conflicted", "PartiallyInvalid", "OverlappingTLSConfig"
INSECURE_VALIDATION = "InsecureFrontendValidationMode"
FAULT_ORDERED, DRAINED = f"{KEY_PREFIX}FaultOrdered", f"{KEY_PREFIX}Drained"
"""Of our own: a fault that was ordered."""
INVALID, PENDING, UNSUPPORTED = "Invalid", "Pending", "UnsupportedValue"
INCOMPATIBLE_FILTERS, INVALID_ROUTE_KINDS = "IncompatibleFilters", "InvalidRouteKinds"
OF_PROGRAMMED: Mapping[Reason, str] = {
    Reason.POOL_EXHAUSTED: "AddressNotAssigned",
    Reason.NO_POOL: "AddressNotAssigned",
    **dict.fromkeys(
        (
            Reason.OUT_OF_POOL,
            Reason.SELECTOR_MISMATCH,
            Reason.IN_USE,
            Reason.FAMILY_MISMATCH,
            Reason.EXCLUDED,
            Reason.NOT_ON_HOST,
            Reason.POOL_ON_LINK,
            Reason.POOL_OVERLAPS,
        ),
        "AddressNotUsable",
    ),
    Reason.HOST_LIMIT: "NoResources",
    Reason.PROXY_DOWN: PENDING,
}
"""The specification's reasons of Programmed; any other is Invalid."""
LISTENERS_NOT_VALID = "ListenersNotValid"
"""The reason of Accepted of a Gateway or ListenerSet with unserved listeners: some, or all."""
_LONGEST = 1024


class Failure(NamedTuple):
    """A problem: a reason of the specification, and a sentence."""

    reason: str
    message: str


def verdict(kind: str, failure: Failure | None, reason: str = "", message: str = "") -> Condition:
    """Return a condition that is true where there is no trouble; its reason then is its own name unless given."""
    if failure:
        return Condition(kind, "False", failure.reason, failure.message[:_LONGEST])
    return Condition(kind, "True", reason or kind, message[:_LONGEST])


def ordered(kind: str, message: str) -> Condition:
    """Return a condition of our own; its reason is its name."""
    return Condition(kind, "True", kind.rpartition("/")[2], message[:_LONGEST])


def conditions(*stated: Condition) -> JsonObject:
    """Return the field that has them."""
    return {"conditions": [asdict(condition) for condition in stated]}
