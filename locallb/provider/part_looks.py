"""Coalesced reads of a shared proxy's parts: all that ask an Envoy at the same moment share one answer."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeAlias

from locallb.envoy.admin import EnvoyAdmin
from locallb.envoy.fragments import Tag, tag
from locallb.model.fields import JsonObject
from locallb.model.identities import PartId
from locallb.threads.joined import Joined

LONGEST = 90
"""Characters of an expression: Envoy refuses those that compile to more than 100 steps, and a character is one."""
_MOST = 16
"""Questions by name, for about fifty parts: to be told once all that a proxy of a hundred has costs less than more."""
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
    return looks(directory).ask((part, frozenset(names)))


def looks(directory: Path) -> Joined[_Wanted, PartSeen]:
    """Return where those wait who want a look at the Envoy in `directory`."""
    return _LOOKS.get(directory) or _LOOKS.setdefault(directory, Joined(partial(_look, EnvoyAdmin(directory))))


def _look(admin: EnvoyAdmin, wanted: Sequence[_Wanted]) -> list[PartSeen]:
    names = {re.escape(name) for _, names_of_part in wanted for name in names_of_part}
    parts = {f"{part[:_ENOUGH]}.*" for part, names_of_part in wanted if names_of_part}
    listeners = {str(listener.get("name")): listener for listener in _dumped(admin, "dynamic_listeners", names)}
    clusters: dict[PartId, dict[str, str]] = {}
    for cluster in _dumped(admin, "dynamic_active_clusters", parts):
        if tagged := _tagged(cluster.get("cluster")):
            clusters.setdefault(tagged.part, {})[str(cluster["cluster"].get("name"))] = tagged.version
    return [
        _seen(part, names_of_part, listeners, clusters.get(part, {}) if names_of_part else {})
        for part, names_of_part in wanted
    ]


def _dumped(admin: EnvoyAdmin, resource: str, names: Iterable[str]) -> Iterator[JsonObject]:
    """Read what matches any of these; all that there is where that would take many questions."""
    expressions = [*_expressions(names)]
    for expression in expressions if len(expressions) <= _MOST else [".*"]:
        yield from admin.dump(resource, expression)


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
    part: PartId, names: Collection[str], listeners: Mapping[str, JsonObject], clusters: Mapping[str, str]
) -> PartSeen:
    """Pick what is of a part, or called as one of its listeners."""
    named = {name: listeners[name] for name in names if name in listeners}
    errors = {name: listener["error_state"] for name, listener in named.items() if "error_state" in listener}
    failed = {name: str(error.get("details", "")) for name, error in errors.items()}
    tags = {name: _tagged((listener.get("active_state") or {}).get("listener")) for name, listener in named.items()}
    versions = {name: tagged.version for name, tagged in tags.items() if tagged and tagged.part == part}
    return PartSeen(versions, clusters, failed)


def _tagged(resource: JsonObject | None) -> Tag | None:
    """Return whose a listener or cluster is, and its version."""
    return tag(resource) if resource else None
