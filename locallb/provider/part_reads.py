"""Coalesced reads of a shared proxy's parts: all that ask an Envoy at the same moment share one answer.

While many resources are only looked at, one answer for each Envoy serves all that ask from its beginning on.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from threading import Lock
from typing import TypeAlias

from msgspec import Struct, field

from locallb.envoy.admin import EnvoyAdmin, EnvoyAdminError
from locallb.envoy.fragments import Tag, tag
from locallb.model.fields import JsonObject
from locallb.model.identities import PartId
from locallb.threads.joined import Joined

LONGEST = 90
"""Maximum characters of an expression: Envoy refuses more than 100 compiled steps, one per character."""
_MAX = 16
"""Maximum queries by name, for about fifty fragments: with more, a full dump of a proxy of a hundred costs less."""
_ENOUGH = 6
"""Prefix length of a fragment's name in a query; another fragment with that prefix is distinguished by its tag."""
_ALL = ".*"
_Wanted: TypeAlias = tuple[PartId, frozenset[str]]


class ObservedPart(Struct, frozen=True):
    """What runs of a part: versions of listeners and clusters by name, and why a listener can't be as it should."""

    listeners: Mapping[str, str]
    clusters: Mapping[str, str]
    failed: Mapping[str, str]


_CHECKS: dict[Path, Joined[_Wanted, ObservedPart]] = {}
_HEALTHY: dict[Path, Joined[None, Mapping[str, bool]]] = {}


def read_part(directory: Path, part: PartId, names: Collection[str]) -> ObservedPart:
    """Read what runs of a part of the Envoy in `directory`, its listeners among those called `names`, from now on.

    Every listener and cluster says which version of itself it is; one that is being replaced is the old one until its
    successor is ready. Raises EnvoyAdminError.
    """
    return checks(directory).ask((part, frozenset(names)))


def read_healthy(directory: Path) -> Mapping[str, bool]:
    """Read which upstreams of the Envoy in `directory` have a healthy backend, from now on. Raises EnvoyAdminError."""

    def read(questions: Sequence[None]) -> list[Mapping[str, bool]]:
        return [EnvoyAdmin(directory).healthy()] * len(questions)

    return (_HEALTHY.get(directory) or _HEALTHY.setdefault(directory, Joined(read))).ask(None)


def checks(directory: Path) -> Joined[_Wanted, ObservedPart]:
    """Return where those wait who want a look at the Envoy in `directory`."""
    return _CHECKS.get(directory) or _CHECKS.setdefault(directory, Joined(partial(_inspect, EnvoyAdmin(directory))))


def _inspect(admin: EnvoyAdmin, wanted: Sequence[_Wanted]) -> list[ObservedPart]:
    names = {re.escape(name) for _, names_of_part in wanted for name in names_of_part}
    parts = {f"{part[:_ENOUGH]}.*" for part, names_of_part in wanted if names_of_part}
    dumped = _Dumped.of(admin, names, parts)
    return [dumped.observed(part, names_of_part) for part, names_of_part in wanted]


class _Dumped(Struct, frozen=True):
    """Dump of an Envoy."""

    listeners: Mapping[str, JsonObject]
    clusters: Mapping[PartId, Mapping[str, str]]
    """Their versions by part and name."""

    @classmethod
    def of(cls, admin: EnvoyAdmin, names: Iterable[str], parts: Iterable[str]) -> _Dumped:
        """Read the listeners and clusters with a name that matches any of these."""
        listeners = {str(entry.get("name")): entry for entry in _dumped(admin, "dynamic_listeners", names)}
        clusters: dict[PartId, dict[str, str]] = {}
        for cluster in _dumped(admin, "dynamic_active_clusters", parts):
            if tagged := _tagged(cluster.get("cluster")):
                clusters.setdefault(tagged.part, {})[str(cluster["cluster"].get("name"))] = tagged.version
        return cls(listeners, clusters)

    def observed(self, part: PartId, names: Collection[str]) -> ObservedPart:
        """Pick what is of a part."""
        return _observed(part, names, self.listeners, self.clusters.get(part, {}) if names else {})


class _SharedDump(Struct, eq=False):
    """What each Envoy had at some moment since this began, or why it can't be asked."""

    _turns: dict[Path, Lock] = field(default_factory=dict)
    _reported: dict[Path, _Dumped | EnvoyAdminError] = field(default_factory=dict)

    def at(self, directory: Path) -> _Dumped:
        """Return what the Envoy in `directory` has; one thread asks. Raises EnvoyAdminError."""
        with self._turns.setdefault(directory, Lock()):
            reported = self._reported.get(directory) or self._reported.setdefault(directory, _ask(directory))
        if isinstance(reported, EnvoyAdminError):
            raise reported
        return reported


def _ask(directory: Path) -> _Dumped | EnvoyAdminError:
    try:
        return _Dumped.of(EnvoyAdmin(directory), (_ALL,), (_ALL,))
    except EnvoyAdminError as error:
        return error


_UNDER_WAY: list[_SharedDump] = []


@contextmanager
def one_pass() -> Iterator[None]:
    """Ask each Envoy once for all that it has, of which `reread` then tells, until this ends."""
    inspect = _SharedDump()
    _UNDER_WAY.append(inspect)
    try:
        yield
    finally:
        _UNDER_WAY.remove(inspect)


def reread(directory: Path, part: PartId, names: Collection[str]) -> ObservedPart:
    """Read the same as `read_part`, but what one look at many saw that is under way. Raises EnvoyAdminError.

    With several under way nobody knows to which a question belongs, so that each is asked by itself.
    """
    checks_now = tuple(_UNDER_WAY)
    return (
        checks_now[0].at(directory).observed(part, names) if len(checks_now) == 1 else read_part(directory, part, names)
    )


def _dumped(admin: EnvoyAdmin, resource: str, names: Iterable[str]) -> Iterator[JsonObject]:
    """Read what matches any of these; all that there is where that would take many questions."""
    expressions = [*_expressions(names)]
    for expression in expressions if len(expressions) <= _MAX else [_ALL]:
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


def _observed(
    part: PartId, names: Collection[str], listeners: Mapping[str, JsonObject], clusters: Mapping[str, str]
) -> ObservedPart:
    """Pick what is of a part, or called as one of its listeners."""
    named = {name: listeners[name] for name in names if name in listeners}
    errors = {name: listener["error_state"] for name, listener in named.items() if "error_state" in listener}
    failed = {name: str(error.get("details", "")) for name, error in errors.items()}
    tags = {name: _tagged((listener.get("active_state") or {}).get("listener")) for name, listener in named.items()}
    versions = {name: tagged.version for name, tagged in tags.items() if tagged and tagged.part == part}
    return ObservedPart(versions, clusters, failed)


def _tagged(resource: JsonObject | None) -> Tag | None:
    """Return the fragment of a listener or cluster, and its version."""
    return tag(resource) if resource else None
