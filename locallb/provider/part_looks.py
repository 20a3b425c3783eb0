"""Coalesced reads of a shared proxy's parts: all that ask an Envoy at the same moment share one answer."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from locallb.envoy.admin import EnvoyAdmin
from locallb.envoy.fragments import tag
from locallb.model.identities import PartId
from locallb.threads.joined import Joined

LONGEST = 90
"""Characters of an expression: Envoy refuses those that compile to more than 100 steps, and a character is one."""
_ENOUGH = 6
"""Characters of a part's name by which it is asked for; another one that begins so is told by its tag."""
_Wanted: TypeAlias = tuple[PartId, frozenset[str]]


@dataclass(frozen=True, slots=True)
class PartSeen:
    """What runs of a part: versions of listeners and clusters by name, and why a listener can't be as it should."""

    listeners: Mapping[str, str]
    clusters: Mapping[str, str]
    failed: Mapping[str, str]


_LOOKS: dict[Path, Joined[_Wanted, PartSeen]] = {}


def look_at(directory: Path, part: PartId, names: Collection[str]) -> PartSeen:
    """Read what runs of a part of the Envoy in `directory`, its listeners among those called `names`, from now on.

    Every listener and cluster says which version of itself it is; one that is being replaced is the old one until its
    successor is ready. Raises EnvoyAdminError.
    """
    looks = _LOOKS.get(directory) or _LOOKS.setdefault(directory, Joined(partial(_look, EnvoyAdmin(directory))))
    return looks.ask((part, frozenset(names)))


def _look(admin: EnvoyAdmin, wanted: Sequence[_Wanted]) -> list[PartSeen]:
    names = {re.escape(name) for _, some in wanted for name in some}
    parts = {f"{part[:_ENOUGH]}.*" for part, some in wanted if some}
    listeners = [each for some in _expressions(names) for each in admin.dump("dynamic_listeners", some)]
    clusters = [each for some in _expressions(parts) for each in admin.dump("dynamic_active_clusters", some)]
    return [_seen(part, some, listeners, clusters if some else ()) for part, some in wanted]


def _expressions(names: Iterable[str]) -> Iterator[str]:
    """Return expressions that together match all of these."""
    expression = ""
    for name in sorted(names):
        if expression and len(expression) + len(name) >= LONGEST:
            yield expression
            expression = ""
        expression = f"{expression}|{name}" if expression else name
    if expression:
        yield expression


def _seen(
    part: PartId,
    names: Collection[str],
    listeners: Iterable[Mapping[str, Any]],
    clusters: Iterable[Mapping[str, Any]],
) -> PartSeen:
    """Pick what is of a part, or called as one of its listeners."""
    named = [listener for listener in listeners if listener.get("name") in names]
    failed = {str(each["name"]): str(each["error_state"].get("details", "")) for each in named if "error_state" in each}
    return PartSeen(
        _versions(part, ((listener.get("active_state") or {}).get("listener") for listener in named)),
        _versions(part, (cluster.get("cluster") for cluster in clusters)),
        failed,
    )


def _versions(part: PartId, resources: Iterable[Mapping[str, Any] | None]) -> Mapping[str, str]:
    """Return the versions of those that are tagged as the part's."""
    there = [resource for resource in resources if resource]
    return {
        str(resource.get("name")): tagged.version
        for resource in there
        if (tagged := tag(resource)) and tagged.part == part
    }
