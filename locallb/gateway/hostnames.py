"""Hostname intersection of a listener and a route, and which of several hostnames is the most specific.

`*.` matches any number of labels, one at least; an empty hostname matches every name. Not here: their
validation (`fields`).
"""

from __future__ import annotations

from collections.abc import Iterable

_WILDCARD = "*."


def covers(general: str, special: str) -> bool:
    """Return whether `general` matches every name that `special` matches."""
    if general in {"", special}:
        return True
    return general.startswith(_WILDCARD) and special.removeprefix(_WILDCARD).endswith(general[1:])


def covering(name: str) -> tuple[str, ...]:
    """Return every hostname that covers `name`, the most specific one first."""
    labels = name.removeprefix(_WILDCARD).split(".")
    wider = (_WILDCARD + ".".join(labels[number:]) for number in range(1, len(labels)))
    return tuple(dict.fromkeys((name, *wider, "")))


def intersection(name: str, other: str) -> str | None:
    """Return the more specific name, if it is included in the other; else None."""
    if covers(name, other):
        return other
    return name if covers(other, name) else None


def intersections(listener: str, route: Iterable[str] | None) -> tuple[str, ...]:
    """Return the common hostnames of a listener and a route; a route without hostnames takes all of the listener's.

    None is a route with hostnames that match no request.
    """
    names = () if route is None else tuple(route) or ("",)
    both = (intersection(listener, name) for name in names)
    return tuple(dict.fromkeys(name for name in both if name is not None))


def specificity(name: str) -> tuple[bool, int]:
    """Return what to sort by, most specific first: names, then wildcards, longer ones first."""
    return not name or name.startswith(_WILDCARD), -len(name)
