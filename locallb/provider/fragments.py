"""ServiceConfig, one Service's part of a shared proxy: inserted, read back and removed under a running Envoy.

Envoy reads a file as a whole, so every change is a change of the whole: threads that want one at the same time are
served together, by the first of them that gets its turn. Reads are coalesced likewise: all threads that query an Envoy
at the same moment share one answer, and while many resources are only checked, one answer for each Envoy serves all of
them (`one_pass`).

New clusters are inserted before the listeners that use them, old clusters are removed after their listeners. The end of
a removed listener is awaited, because its address is released next. Not here: the content of a part
(`envoy.fragments`), and how threads are joined (`threads`).
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from functools import cached_property, partial
from pathlib import Path
from threading import Lock
from typing import Any, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from locallb.envoy import push, rollout
from locallb.envoy.admin import EnvoyAdmin, EnvoyAdminError, size_of_files
from locallb.envoy.document import settling_time
from locallb.envoy.fragments import Tag, Tagged, Texts, joined, split_parts, tag
from locallb.envoy.listeners import GATE
from locallb.host import limits
from locallb.ledger.ledger import Ledger
from locallb.model.fields import JsonObject
from locallb.model.identities import PartId, ProxyId
from locallb.resources.properties import ServiceConfigInputs, ServiceConfigState
from locallb.resources.resource_type import ProviderError, ResourceType, grown, id_faults
from locallb.runtimes.runtime import end_hanging
from locallb.storage import files, paths
from locallb.storage.proxy_directories import Proxies
from locallb.threads import Joined


@contextmanager
def gathering(parts: Iterable[ProxyId], claims: int) -> Iterator[None]:
    """Expect a new part in each of these proxies, and so many claims; one that fails is waited for once, briefly.

    The new parts of an update are claimed, inserted and proven together, not one by one: Envoy reads all of its
    configuration for each change, and each claim goes through the whole ledger.
    """
    expected: dict[Joined[Any, Any], int] = {Ledger(paths.ledger_directory()).queue: claims}
    for proxy, number in Counter(parts).items():
        directory = Proxies.ours().path(proxy)
        expected |= {queue_proxy_fragment(directory): number, checks(directory): number}
    for queue, number in expected.items():
        queue.expect(number)
    try:
        yield
    finally:
        for queue in expected:
            queue.expect(0)


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


_PAUSE = 0.002
_Document: TypeAlias = Mapping[str, Tagged]
_Signature: TypeAlias = tuple[int, int, int]


class FragmentChange(Struct, frozen=True):
    """Desired content of a fragment; `removed` are listeners that must not be reachable afterwards."""

    part: PartId
    listeners: Texts = field(default_factory=dict)
    clusters: Texts = field(default_factory=dict)
    removed: frozenset[str] = frozenset()


class _File(Struct, frozen=True, dict=True):
    """What a file has, as long as it is the one of this signature."""

    signature: _Signature
    document: _Document

    def of(self, part: PartId) -> Texts:
        return self._parts.get(part, {})

    @cached_property
    def _parts(self) -> Mapping[str, Texts]:
        by_part: dict[str, dict[str, str]] = {}
        for name, tagged in self.document.items():
            by_part.setdefault(tagged.part, {})[name] = tagged.text
        return by_part


_QUEUES: dict[Path, Joined[FragmentChange, None]] = {}
_OBSERVED: dict[Path, _File] = {}
"""Files as they were last: with a thousand parts in it a file takes longer to read than all the rest."""
_READING = Lock()
"""One thread reads, the others find what it read."""


def apply(directory: Path, change: FragmentChange) -> None:
    """Apply one fragment together with all other pending changes. Raises ClientError, ProviderError."""
    queue_proxy_fragment(directory).ask(change)


def queue_proxy_fragment(directory: Path) -> Joined[FragmentChange, None]:
    """Return where those wait who want a change of the proxy in `directory`."""
    return _QUEUES.get(directory) or _QUEUES.setdefault(directory, Joined(partial(_serve, directory)))


def read_proxy_fragment(directory: Path, part: PartId) -> tuple[Texts, Texts]:
    """Read the listeners and clusters of a part. Raises ClientError."""
    listeners, clusters = (_file(directory / name) for name in (rollout.LISTENERS, rollout.CLUSTERS))
    return listeners.of(part), clusters.of(part)


def rewrite_listeners(directory: Path) -> None:
    """Put the listeners into place once more as they are: Envoy then binds what it couldn't. Raises ClientError."""
    with queue_proxy_fragment(directory).turn, files.locked(directory):
        path = directory / rollout.LISTENERS
        text = files.read_shared(path)
        if text is not None:
            files.write(path, text, mode=files.mode(path))


def _serve(directory: Path, changes: Sequence[FragmentChange]) -> list[None]:
    """Carry out several changes as one; all of them share how that ends."""
    with files.locked(directory):
        _roll_out(directory, changes)
    return [None] * len(changes)


def _roll_out(directory: Path, changes: Sequence[FragmentChange]) -> None:
    latest = {change.part: change for change in changes}
    listeners, clusters = (_file(directory / name).document for name in (rollout.LISTENERS, rollout.CLUSTERS))
    new_listeners = {name: Tagged(c.part, text) for c in latest.values() for name, text in c.listeners.items()}
    new_clusters = {name: Tagged(c.part, text) for c in latest.values() for name, text in c.clusters.items()}
    wanted = {**_without(listeners, latest), **new_listeners}
    bridge = {**clusters, **new_clusters}
    series = push.Series(directory, files.PRIVATE)
    _put(series, rollout.CLUSTERS, clusters, bridge)
    _put(series, rollout.LISTENERS, listeners, wanted)
    removed = listeners.keys() | {name for change in changes for name in change.removed}
    _await_removal(directory, removed - wanted.keys())
    _put(series, rollout.CLUSTERS, bridge, {**_without(clusters, latest), **new_clusters})


def _put(series: push.Series, name: str, before: _Document, after: _Document) -> None:
    """Write a file where it changes, and wait for the Envoy that runs there."""
    path = series.directory / name
    if before == after and path.exists():
        return
    text, version = joined(after)
    series.mode = files.mode(path)
    series.put(rollout.Write(name, text, version))
    _OBSERVED[path] = _File(_signature(path), after)


def _await_removal(directory: Path, names: AbstractSet[str]) -> None:
    """Wait until nothing listens there any more. An Envoy that runs and doesn't answer is stopped: it may still."""
    deadline = time.monotonic() + settling_time(size_of_files(directory))
    while names:
        try:
            remaining = EnvoyAdmin(directory).listeners() & names
        except EnvoyAdminError:
            end_hanging(directory)
            return
        if not remaining:
            return
        if time.monotonic() > deadline:
            raise ProviderError(
                f"proxy {directory.name} goes on listening at {', '.join(sorted(remaining))}; run up again"
            )
        time.sleep(_PAUSE)


def _file(path: Path) -> _File:
    """Read a file, unless it is still the one that was read or written last."""
    with _READING:
        signature = _signature(path)
        existing = _OBSERVED.get(path)
        if existing is None or existing.signature != signature:
            existing = _OBSERVED[path] = _File(signature, split_parts(files.read_shared(path) or ""))
        return existing


def _signature(path: Path) -> _Signature:
    """Return which file this is: a file renamed into place is another."""
    try:
        stat = path.stat()
    except OSError:
        return (0, 0, 0)
    return (stat.st_ino, stat.st_mtime_ns, stat.st_size)


def _without(document: _Document, parts: Mapping[PartId, FragmentChange]) -> _Document:
    return {name: tagged for name, tagged in document.items() if tagged.part not in parts}


class ServiceConfig(ResourceType[ServiceConfigInputs, ServiceConfigState]):
    """Puts a part in, and takes it out before the Service's addresses go."""

    replaced_for = frozenset({"proxy", "part"})
    """Move to another proxy old before new: two can't listen at one address."""
    delete_first = True

    def shown(self, changed: frozenset[str]) -> frozenset[str]:
        """Show no files with other listeners, which ports and routes are; of backends nothing else tells."""
        return changed - {"listeners", "clusters"} if "listeners" in changed else changed

    def check(self, new: ServiceConfigInputs) -> Iterator[tuple[str, str]]:
        """Check ids only; the texts are Envoy's to judge."""
        yield from id_faults("proxy", new.proxy)
        yield from id_faults("part", new.part)

    def create(self, new: ServiceConfigInputs) -> tuple[str, ServiceConfigState]:
        """Put it in, in place of what an interrupted run left."""
        return new.part, self._put(new, frozenset())

    def read(self, state: ServiceConfigState) -> ServiceConfigState | None:
        """Read the files: a fragment changed or removed by another process shows as a changed property."""
        directory = _directory(state)
        if directory is None:
            return None
        listeners, clusters = read_proxy_fragment(directory, state.part)
        return replace(state, listeners=listeners, clusters=clusters)

    def leaves_nothing(self, state: ServiceConfigState) -> bool:
        """Return whether no file has anything of this part."""
        directory = _directory(state)
        return directory is None or not any(read_proxy_fragment(directory, state.part))

    def update(self, old: ServiceConfigState, new: ServiceConfigInputs) -> ServiceConfigState:
        """Put it in again; a port that is no longer there is closed when this ends."""
        return self._put(new, frozenset(old.listeners.keys() - new.listeners.keys()))

    def delete(self, state: ServiceConfigState) -> None:
        """Take it out, and check that nothing listens there any more. Open connections go on with the proxy."""
        directory = _directory(state)
        if directory and not self.belongs_to_copied_project(state.owner):
            apply(directory, FragmentChange(state.part, removed=frozenset(state.listeners)))

    def _put(self, new: ServiceConfigInputs, removed: frozenset[str]) -> ServiceConfigState:
        directory = _directory(new)
        if directory is None:
            home = new.owner.home
            raise ProviderError(f"proxy {new.proxy} has no directory of {home}: refresh and run up again")
        if any(GATE in text for text in new.listeners.values()):
            _prepare_gate(directory, new.part)
        apply(directory, FragmentChange(new.part, new.listeners, new.clusters, removed))
        return grown(self.state, new)


def _prepare_gate(directory: Path, part: str) -> None:
    """Create the file that listeners with a log refer to, where it is missing."""
    if not (directory / GATE).exists():
        limits.require(1, f"the log of {part}")
    push.close_gate(directory, files.mode(directory / rollout.LISTENERS))


def _directory(existing: ServiceConfigInputs) -> Path | None:
    """Find the proxy's directory, if it is this stack's."""
    directory = Proxies.ours().find(existing.proxy)
    if directory is None or directory.owner is None or directory.owner.home != existing.owner.home:
        return None
    return directory.path
