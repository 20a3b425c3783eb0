"""The source `manifests`: a directory of YAML and JSON files, or one such file, in place of a cluster.

Output of `kubectl get -o yaml`, `helm template` and `kustomize build` is read as it is. A file that can't be read
counts as at the last good reading, and so does every object that has vanished since, because it may have moved into
that file. Not here: what the objects mean (`kubernetes.object_parsing`), how files are read (`storage.folders`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from functools import partial
from itertools import chain
from operator import attrgetter
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from locallb.gateway.crds import structural_faults
from locallb.kubernetes.events import Identity
from locallb.kubernetes.object_parsing import ParseMemory, parse_objects
from locallb.model.errors import has_remedy
from locallb.model.identities import ClusterName, Home, ObjectKey, ObjectKind
from locallb.model.memory import Memo
from locallb.model.snapshot import Contents, Place
from locallb.model.texts import clipped
from locallb.planning.refused import added
from locallb.safe_files import expanded
from locallb.sources import SourceError
from locallb.sources.entries import ManifestsSource
from locallb.sources.manifest_files import QUIET, FilesNow, ParsedFile, WrittenFiles, object_lines, understood_files
from locallb.sources.readings import FilesOfObjects, ReadCache, TextCache
from locallb.sources.source import SourceRead, SourceResult, SourceType, with_stale
from locallb.storage.folder_watch import FollowedFolder
from locallb.storage.folders import Folder, FolderError, ReadLimits, read_folder
from locallb.storage.paths import stack_directory
from locallb.threads import THREADS

ENDINGS = (".yaml", ".yml", ".json")
LARGEST_FILE = 32 * 2**20
"""Bytes of a file that is read."""
LARGEST = 256 * 2**20
"""Bytes of all files together."""
LIMITS = ReadLimits(LARGEST_FILE, LARGEST)
LONGEST_WAIT = 3.0
"""Seconds that a single reading waits for files that are being written."""
_REMEDY = "name a directory of manifests, or one such file, in local-lb:sources"
_NOT_EXPANDED = (
    ("://", "what lies elsewhere isn't fetched: download it, and name the file in local-lb:sources"),
    ("*", "patterns aren't expanded: name the directory in local-lb:sources, of which every manifest is read"),
    ("$", "variables aren't expanded: write the path itself into local-lb:sources; ~ is understood"),
)
"""Patterns that users write into a path without effect, and the remedy for each."""


_KINDS = {"Service": ObjectKind.SERVICE, "Gateway": ObjectKind.GATEWAY, "Ingress": ObjectKind.INGRESS}
"""Kinds of objects that may have an address of their own."""


class ParseCache(Struct):
    """Parse results of a directory's last reading, for repeated readings.

    A file with the same bytes means the same, so only changed files are parsed again.
    """

    followed: FollowedFolder | None = None
    """For frequent readings: the kernel names the changed files; the creator of this object closes it."""
    contained: bool = False
    """Whether no link is followed that leads out of the directory."""
    folder: Folder | None = None
    """The directory's contents at the last reading."""
    reading: SourceResult | None = None
    """The last result, if all of it was good."""
    existing: ParseMemory = field(default_factory=ParseMemory)
    """Parse results of unchanged objects."""
    retained: TextCache = field(default_factory=TextCache)
    """Serialized entries of unchanged objects in the last good reading."""
    files: dict[str, ParsedFile] = field(default_factory=dict)
    """Each file that could be read."""
    kinds: Memo[Mapping[str, int]] = field(default_factory=Memo)
    """The number of objects in each of these, by kind, and in all together."""
    written: WrittenFiles = field(default_factory=WrittenFiles)
    """Objects that disappeared from files which may be half written."""


def manifests_path(source: ManifestsSource, root: Path) -> Path:
    """Return where a source's directory is, or its only file."""
    return root / expanded(source.directory)


def read_manifests(  # noqa: PLR0913 - each optional one is a choice of its own
    source: ManifestsSource,
    root: Path,
    readings_dir: Path,
    *,
    held_services: Collection[ObjectKey] = (),
    keep: bool = False,
    memory: ParseCache | None = None,
    contained: bool = False,
) -> SourceResult:
    """Read a directory of manifests, or a file, relative to the project's `root`.

    Args:
        source: which directory, for which cluster.
        root: what the directory is relative to.
        readings_dir: where the stack's last good readings are.
        held_services: Services that hold an address or a proxy. With one of this cluster among them, a file that can't
            be read stops the run unless there is a last good reading.
        keep: make this the last good reading, as far as it is good.
        memory: that of earlier readings of the same directory, with the same `keep`.
        contained: follow no link that leads out of the directory.

    Raises:
        SourceError: if what can't be read can't be replaced by a last good reading.

    """
    if memory is not None:
        return _read_once(source, root, readings_dir, held_services, memory, keep=keep)
    memory, began = ParseCache(contained=contained), time.monotonic()
    result = _read_once(source, root, readings_dir, held_services, memory, keep=keep)
    while memory.written.due is not None and time.monotonic() < began + LONGEST_WAIT:
        time.sleep(max(0.0, memory.written.due - time.monotonic()))
        result = _read_once(source, root, readings_dir, held_services, memory, keep=keep)
    return result


def _read_once(  # noqa: PLR0913 - as above
    source: ManifestsSource,
    root: Path,
    readings_dir: Path,
    held_services: Collection[ObjectKey],
    memory: ParseCache,
    *,
    keep: bool,
) -> SourceResult:
    readings, directory = ReadCache(readings_dir), manifests_path(source, root)
    try:
        folder = _folder(directory, memory)
    except FolderError as error:
        memory.folder = memory.reading = None
        return _from_copy_alone(source, directory, error, readings)
    now = time.monotonic()
    is_due = memory.written.due is not None and now >= memory.written.due
    if memory.reading and not is_due and memory.folder == folder:
        if memory.folder is not folder:
            memory.written.identify(folder.files)
        memory.folder = folder  # of the same, but with later stamps, and what is followed from now on
        return memory.reading
    fresh = _fresh(source, folder, memory, readings, directory)
    memory.folder, memory.reading = folder, None
    read = fresh.objects
    fresh = _believed(fresh, folder, memory.written, now, partial(_last_of, readings, source.cluster))
    if fresh.broken:
        last = readings.load(source.cluster)
        if last is None and any(key.cluster == source.cluster for key in held_services):
            remedy = "and there is no earlier reading to go by; repair it and run again"
            raise SourceError("\n".join(_sentences(source.cluster, fresh.broken, remedy)))
        objects = _completed(_present(fresh, read), last) if last is not None else fresh.objects
        remedy = (
            "so what it had counts as last read; repair it" if last is not None else "so its Services wait; repair it"
        )
        stale = tuple(_sentences(source.cluster, fresh.broken, remedy))
    else:
        objects, stale = fresh.objects, ()
    if keep:
        readings.keep(source.cluster, objects, memory.retained)
    reading = _reading(source.cluster, objects, fresh, stale, memory.existing)
    memory.reading = None if fresh.broken else reading
    return reading


def _folder(directory: Path, memory: ParseCache) -> Folder:
    if memory.followed:
        return memory.followed.read(directory, memory.folder)
    return read_folder(directory, ENDINGS, LIMITS, memory.folder, contained=memory.contained)


def _fresh(
    source: ManifestsSource, folder: Folder, memory: ParseCache, readings: ReadCache, directory: Path
) -> FilesNow:
    """Understand what the files have now, and remember that."""
    place = directory.parent if directory.is_file() else directory
    fresh = understood_files(folder, memory.files, place)
    memory.files = fresh.understood
    fresh.kinds = memory.kinds.of(None, added, memory.kinds.each(attrgetter("kinds"), memory.files.values()))
    if not folder.files:
        fresh.notices.append(f"the directory {clipped(source.directory)} has no file that ends in {', '.join(ENDINGS)}")
    empty = [path for path, file in memory.files.items() if not file.data]
    if empty:
        _distrust(empty, fresh, readings.load(source.cluster) or {}, alone=directory.is_file())
    return fresh


def _last_of(readings: ReadCache, cluster: ClusterName) -> FilesOfObjects:
    """Return the last good reading; nothing where it can't be used."""
    with suppress(SourceError):
        return readings.load(cluster) or {}
    return {}


def _believed(
    fresh: FilesNow, folder: Folder, written: WrittenFiles, now: float, last: Callable[[], FilesOfObjects]
) -> FilesNow:
    """Return the files with what they lost while they may be in the midst of being written."""
    if written.is_new:
        clock = time.time()
        recent = {file.path: now - (clock - file.changed) for file in folder.files if 0 <= clock - file.changed < QUIET}
        if recent:
            written.begin(last(), recent)
    identities = {file.path: file.identity for file in folder.files}
    counted = written.believe(
        fresh.objects, identities, lambda path: any(_within(path, broken) for broken in fresh.broken), now
    )
    return replace(fresh, objects=counted)


def _present(fresh: FilesNow, read: FilesOfObjects) -> FilesNow:
    """Return the files without objects that they lost: what is nowhere to be found counts as last read anyway."""
    found = {path: {Identity.of(document) for document in listed} for path, listed in read.items()}
    objects = {
        path: tuple(document for document in listed if Identity.of(document) in found[path])
        for path, listed in fresh.objects.items()
    }
    return replace(fresh, objects=objects)


def _distrust(empty: list[str], fresh: FilesNow, last: FilesOfObjects, *, alone: bool) -> None:
    """Count emptied files as broken: `kubectl get > FILE` empties it seconds before it writes."""
    for path in empty:
        if any(last.values()) if alone else last.get(path):
            del fresh.objects[path]
            fresh.broken[path] = " is empty (remove it, if nothing shall be in it)"


def _from_copy_alone(source: ManifestsSource, directory: Path, error: FolderError, readings: ReadCache) -> SourceResult:
    """Return the last reading; if the host error has a remedy, no other is recommended. Raises SourceError."""
    last, helped = readings.load(source.cluster), has_remedy(error.__cause__)
    sentence = f"source {source.cluster}: {directory} can't be read ({error})"
    if last is None:
        remedy = next((meaning for sign, meaning in _NOT_EXPANDED if sign in source.directory), _REMEDY)
        raise SourceError(sentence if helped else f"{sentence}; {remedy}")
    remedy = "" if helped else "; bring it back, or take it out of local-lb:sources"
    stale = (f"{sentence}, so its Services count as last read{remedy}",)
    return _reading(source.cluster, last, FilesNow(), stale, ParseMemory())


def _sentences(cluster: ClusterName, broken: dict[str, str], remedy: str) -> Iterable[str]:
    return (f"source {cluster}: {clipped(path)}{broken[path]}, {remedy}" for path in sorted(broken))


def _reading(
    cluster: ClusterName, objects: FilesOfObjects, fresh: FilesNow, stale: tuple[str, ...], existing: ParseMemory
) -> SourceResult:
    listed = chain.from_iterable(map(objects.__getitem__, sorted(objects)))
    parsed = parse_objects(cluster, listed, existing, structural_faults)
    notices = (*(f"{cluster}: {notice}" for notice in fresh.notices), *parsed.notices)
    contents = Contents(cluster, fresh.kinds, len(fresh.objects))
    return SourceResult(replace(parsed, notices=notices), stale, contents)


def _completed(fresh: FilesNow, last: FilesOfObjects) -> FilesOfObjects:
    """Complete the readable objects by the last reading: of broken files, and of objects that are in no file now.

    The latter are added to the first broken file, so that they stay known until that file can be read.
    """
    identities = {Identity.of(document) for listed in fresh.objects.values() for document in listed}
    missing = {
        path: tuple(document for document in last[path] if Identity.of(document) not in identities) for path in last
    }
    first = min(fresh.broken)
    completed = dict(fresh.objects)
    for path, objects in missing.items():
        home = path if any(_within(path, broken) for broken in fresh.broken) else first
        if objects:
            completed[home] = (*completed.get(home, ()), *objects)
    return completed


def _within(path: str, broken: str) -> bool:
    return path == broken or path.startswith(f"{broken}/")


class Manifests(SourceType[ManifestsSource]):
    """Files, read as they are; file watches report when they change."""

    def read(self, source: ManifestsSource, home: Home, existing: Collection[ObjectKey], *, keep: bool) -> SourceRead:
        return _read(source, home, existing, keep=keep)

    def follow(self, home: Home, changed: Callable[[ClusterName], None]) -> FollowedManifests:
        """Remember what files meant that haven't changed."""
        del changed
        return FollowedManifests(home)

    def contents(self, source: ManifestsSource, root: Path) -> tuple[Path, ...]:
        return (manifests_path(source, root),)

    def places(self, source: ManifestsSource, root: Path) -> Mapping[ObjectKey, Place]:
        directory = manifests_path(source, root)
        try:
            folder = _folder(directory, ParseCache(contained=True))
        except FolderError:  # reading it has said so
            return {}
        base = directory.parent if directory.is_file() else directory
        return {
            ObjectKey(source.cluster, namespace, name, _KINDS[kind]): Place(str(base / file.path), line, fields)
            for file in folder.files
            for kind, namespace, name, line, fields in object_lines(file)
            if kind in _KINDS
        }

    def compared(self, source: ManifestsSource, root: Path, nowhere: Path) -> SourceResult:
        """Read the directory below another root, following no link out of it: its author is untrusted."""
        place = expanded(source.directory)
        written = os.path.normpath(Path(os.path.realpath(root)) / place)
        if not place.is_absolute() and os.path.realpath(root / place) != written:
            raise SourceError(
                f"source {source.cluster}: {source.place} leads through a link; name the directory itself"
            )
        return read_manifests(source, root, nowhere, contained=True)

    def tree(self, source: ManifestsSource) -> tuple[str, tuple[str, ...]]:
        """Return the directory, and what manifests end in."""
        return source.directory, ENDINGS

    def elsewhere(self, source: ManifestsSource, directory: Path) -> ManifestsSource:
        return replace(source, directory=str(directory))


class FollowedManifests:
    """Directories that are read again and again."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._memories: dict[ClusterName, ParseCache] = {}

    def open(self, sources: Iterable[ManifestsSource], existing: Collection[ObjectKey], *, everything: bool) -> None:
        """Begin nothing: directories are read as fast one after the other."""

    def read(
        self, source: ManifestsSource, existing: Collection[ObjectKey], *, everything: bool, moved: bool
    ) -> SourceRead:
        """Read what is different; `everything` relies on nothing that was read before."""
        del moved
        if everything or source.cluster not in self._memories:
            before = self._memories.get(source.cluster, ParseCache())
            self._close(source.cluster)
            self._memories[source.cluster] = ParseCache(FollowedFolder(ENDINGS, LIMITS), written=before.written)
        read = _read(source, self._home, existing, keep=True, memory=self._memories[source.cluster])
        why = THREADS.failure(source.cluster)
        sentence = f"source {source.cluster}: {why}; until it works again, changes are seen late"
        return with_stale(read, *read.reading.stale, sentence) if why else read

    def forget(self, others: Collection[ClusterName]) -> None:
        """Forget all directories but these."""
        self._close(*(name for name in self._memories if name not in others))

    def stop(self) -> None:
        self._close(*self._memories)

    def _close(self, *names: ClusterName) -> None:
        for name in names:
            memory = self._memories.pop(name, None)
            if memory and memory.followed:
                memory.followed.close()


def _read(
    source: ManifestsSource,
    home: Home,
    existing: Collection[ObjectKey],
    *,
    keep: bool,
    memory: ParseCache | None = None,
) -> SourceRead:
    readings = stack_directory(home)
    result = read_manifests(source, Path(home.root), readings, held_services=existing, keep=keep, memory=memory)
    return SourceRead(result, retry=memory.written.due if memory else None)


SOURCE = Manifests()
