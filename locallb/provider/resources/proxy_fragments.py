"""The parts of a shared proxy: inserted, removed and read back under a running Envoy.

Envoy reads a file as a whole, so every change is one of the whole: threads that want one at the same time are served
together, by the first of them that gets its turn. New clusters come before the listeners that use them, old ones go
after; a listener that goes is waited for, because its address is released next. Not here: what a part says.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import cached_property, partial
from pathlib import Path
from threading import Lock
from typing import TypeAlias

from msgspec import Struct, field

from locallb.envoy import push, rollout
from locallb.envoy.admin import EnvoyAdmin, EnvoyAdminError, size_of_files
from locallb.envoy.document import settling_time
from locallb.envoy.fragments import Tagged, Texts, joined, split_parts
from locallb.model.identities import PartId
from locallb.resources.errors import ProviderError
from locallb.runtimes.runtime import end_hanging
from locallb.storage import files
from locallb.threads.joined import Joined

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
        """Return what is of a part."""
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
    queue(directory).ask(change)


def queue(directory: Path) -> Joined[FragmentChange, None]:
    """Return where those wait who want a change of the proxy in `directory`."""
    return _QUEUES.get(directory) or _QUEUES.setdefault(directory, Joined(partial(_serve, directory)))


def read(directory: Path, part: PartId) -> tuple[Texts, Texts]:
    """Read the listeners and clusters of a part. Raises ClientError."""
    listeners, clusters = (_file(directory / name) for name in (rollout.LISTENERS, rollout.CLUSTERS))
    return listeners.of(part), clusters.of(part)


def rewrite_listeners(directory: Path) -> None:
    """Put the listeners into place once more as they are: Envoy then binds what it couldn't. Raises ClientError."""
    with queue(directory).turn, files.locked(directory):
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
    _put(directory, rollout.CLUSTERS, clusters, bridge)
    _put(directory, rollout.LISTENERS, listeners, wanted)
    removed = listeners.keys() | {name for change in changes for name in change.removed}
    _await_removal(directory, removed - wanted.keys())
    _put(directory, rollout.CLUSTERS, bridge, {**_without(clusters, latest), **new_clusters})


def _put(directory: Path, name: str, before: _Document, after: _Document) -> None:
    """Write a file where it changes, and wait for the Envoy that runs there."""
    path = directory / name
    if before == after and path.exists():
        return
    text, version = joined(after)
    push.put(directory, rollout.Write(name, text, version), files.mode(path))
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
