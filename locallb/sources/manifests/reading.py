"""The source `manifests`: a directory of YAML and JSON files, or one such file, that stands for a cluster.

What `kubectl get -o yaml`, `helm template` and `kustomize build` print is read as it is. A file that can't be read
counts as it was at the last good reading, and so does everything that has vanished since, because it may have moved
into that file. Not here: what the objects mean (`kubernetes.parsing`), how files are read (`storage.folders`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

from locallb.kubernetes.documents import DocumentError, ReadDocument, read_documents
from locallb.kubernetes.frontend import frontend
from locallb.kubernetes.parsing import Document, Identity, Parsed, kinds_of, parse_objects, relevant
from locallb.kubernetes.yaml_builder import MOST_ALIASED, Allowance
from locallb.model.formatting import clipped, shown
from locallb.model.identities import ClusterName, ObjectKey
from locallb.model.memory import Memory
from locallb.model.snapshot import Contents
from locallb.planning.left_out import added, few_kinds
from locallb.sources import SourceError
from locallb.sources.manifests.entry import ManifestsSource
from locallb.sources.readings import FilesOfObjects, Objects, ReadCache, slim
from locallb.sources.source import SourceResult
from locallb.storage.folders import Folder, FolderError, FolderFile, Limits, read_folder
from locallb.storage.foreign_files import expanded

ENDINGS = (".yaml", ".yml", ".json")
LARGEST_FILE = 32 * 2**20
"""Bytes of a file that is read."""
LARGEST = 256 * 2**20
"""Bytes of all files together."""
MOST_ALIASED_IN_ALL = 16 * MOST_ALIASED
"""Characters that the aliases of all files may stand for."""
_TEMPLATE = "it is a template: put here what `helm template` makes of it"
_REMEDY = "name a directory of manifests, or one such file, in local-lb:sources"
_NOT_EXPANDED = (
    ("://", "what lies elsewhere isn't fetched: download it, and name the file in local-lb:sources"),
    ("*", "patterns aren't expanded: name the directory in local-lb:sources, of which every manifest is read"),
    ("$", "variables aren't expanded: write the path itself into local-lb:sources; ~ is understood"),
)
"""What some write into a path, and what to do instead."""
_MOST_NOTICES = 20
"""Notices that are told of one file."""


@dataclass(frozen=True, slots=True)
class _Understood:
    """One file: its bytes, and what they mean."""

    data: bytes
    objects: Objects
    notices: tuple[str, ...]
    kinds: Mapping[str, int]
    aliased: int
    """Characters that its aliases stand for."""


@dataclass(slots=True)
class ParseCache:
    """What the last reading of a directory understood, for whoever reads it again and again.

    A file with the same bytes means the same, so only what is different is understood again.
    """

    folder: Folder | None = None
    """What the directory had at the last reading."""
    reading: SourceResult | None = None
    """What that was, if all of it was good."""
    known: Memory[Any] = field(default_factory=Memory)
    """What objects mean that are still the same."""
    texts: Memory[Any] = field(default_factory=Memory)
    """How objects that are still the same stand in the last good reading."""
    files: dict[str, _Understood] = field(default_factory=dict)
    """Each file that could be read."""


@dataclass(slots=True)
class _Fresh:
    """What the files have now."""

    objects: dict[str, Objects] = field(default_factory=dict)
    broken: dict[str, str] = field(default_factory=dict)
    """Why a file, or a directory, can't be read: half a sentence by path."""
    notices: list[str] = field(default_factory=list)
    kinds: Mapping[str, int] = field(default_factory=dict)
    """How many objects there are, by kind."""


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

    Raises:
        SourceError: if what can't be read can't be replaced by a last good reading.

    """
    readings, directory = ReadCache(readings_dir), manifests_path(source, root)
    memory = memory or ParseCache()
    try:
        folder = read_folder(directory, ENDINGS, Limits(LARGEST_FILE, LARGEST), memory.folder)
    except FolderError as error:
        memory.folder = memory.reading = None
        return _from_copy_alone(source, directory, str(error), readings)
    if memory.reading and memory.folder == folder:
        return memory.reading
    fresh = _sorted_out(folder, memory)
    if not folder.files:
        fresh.notices.append(f"the directory {clipped(source.directory)} has no file that ends in {', '.join(ENDINGS)}")
    if empty := [path for path, file in memory.files.items() if not file.data]:
        _distrust(empty, fresh, readings.load(source.cluster) or {}, alone=directory.is_file())
    if fresh.broken:
        last = readings.load(source.cluster)
        if last is None and any(key.cluster == source.cluster for key in held_services):
            remedy = "and there is no earlier reading to go by; repair it and run again"
            raise SourceError("\n".join(_sentences(source.cluster, fresh.broken, remedy)))
        objects = _completed(fresh, last or {})
        remedy = (
            "so what it had counts as last read; repair it" if last is not None else "so its Services wait; repair it"
        )
        stale = tuple(_sentences(source.cluster, fresh.broken, remedy))
    else:
        objects, stale = fresh.objects, ()
    if keep:
        readings.keep(source.cluster, objects, memory.texts)
    reading = _reading(source.cluster, objects, fresh, stale, memory.known)
    memory.folder, memory.reading = folder, None if fresh.broken else reading
    return reading


def _distrust(empty: list[str], fresh: _Fresh, last: FilesOfObjects, *, alone: bool) -> None:
    """Count files that were emptied as broken: `kubectl get > FILE` empties it seconds before it writes."""
    for path in empty:
        if any(last.values()) if alone else last.get(path):
            del fresh.objects[path]
            fresh.broken[path] = " is empty (remove it, if nothing shall be in it)"


def _from_copy_alone(source: ManifestsSource, directory: Path, why: str, readings: ReadCache) -> SourceResult:
    last = readings.load(source.cluster)
    told = f"source {source.cluster}: {directory} can't be read ({why})"
    if last is None:
        raise SourceError(
            f"{told}; {next((meaning for sign, meaning in _NOT_EXPANDED if sign in source.directory), _REMEDY)}"
        )
    stale = (f"{told}, so its Services count as last read; bring it back, or take it out of local-lb:sources",)
    return _reading(source.cluster, last, _Fresh(), stale, Memory())


def _sentences(cluster: ClusterName, broken: dict[str, str], remedy: str) -> Iterable[str]:
    return (f"source {cluster}: {clipped(path)}{broken[path]}, {remedy}" for path in sorted(broken))


def _reading(
    cluster: ClusterName, objects: FilesOfObjects, fresh: _Fresh, stale: tuple[str, ...], known: Memory[Any]
) -> SourceResult:
    parsed = parse_objects(cluster, (document for path in sorted(objects) for document in objects[path]), known)
    notices = (*(f"{cluster}: {notice}" for notice in fresh.notices), *parsed.notices)
    copied = _copied(parsed, fresh) if stale else frozenset()
    contents = Contents(cluster, fresh.kinds, len(fresh.objects))
    return SourceResult(replace(parsed, notices=notices), stale, copied, contents)


def _copied(parsed: Parsed, fresh: _Fresh) -> frozenset[ObjectKey]:
    """Find the Services that no file has now."""
    known = {Identity.of(document) for listed in fresh.objects.values() for document in listed}
    keys = [*(service.key for service in parsed.services), *(malformed.key for malformed in parsed.malformed)]
    return frozenset(key for key in keys if Identity(frontend(key.kind).name, key.namespace, key.name) not in known)


def _sorted_out(folder: Folder, memory: ParseCache) -> _Fresh:
    """Sort files into those that can be read, with their objects, and those that can't."""
    fresh, before, memory.files = _Fresh(), memory.files, {}
    for link in folder.links:
        fresh.notices.append(f"{clipped(link)} is a link to a directory and isn't read; put the directory itself there")
    aliased = 0
    for file in folder.files:
        if file.why:
            fresh.broken[file.path] = f" can't be read ({file.why})"
            continue
        try:
            known = before.get(file.path)
            understood = known if known and known.data == file.data else _understood(file, aliased)
        except DocumentError as error:
            line = f" line {error.line}" if error.line else ""
            what = _TEMPLATE if b"{{" in file.data else error.what
            fresh.broken[file.path] = f"{line} can't be read ({what})"
            continue
        aliased += understood.aliased
        memory.files[file.path] = understood
        fresh.objects[file.path] = understood.objects
        fresh.notices.extend(understood.notices)
    fresh.kinds = added(file.kinds for file in memory.files.values())
    return fresh


def _understood(file: FolderFile, aliased: int) -> _Understood:
    """Read a file; `aliased` is what the aliases of those before it stand for. Raises DocumentError."""
    allowance = Allowance(min(MOST_ALIASED, MOST_ALIASED_IN_ALL - aliased))
    documents = read_documents(file.data, is_json=file.path.endswith(".json"), allowance=allowance)
    sorted_out = [(document, *relevant([document.value])) for document in documents]
    objects = tuple(slim(document) for _, kept, _ in sorted_out for document in kept)
    notices = (told for entry in sorted_out for told in _notices(file.path, *entry))
    some, more = tuple(islice(notices, _MOST_NOTICES)), sum(1 for _ in notices)
    told = (*some, f"{clipped(file.path)}: and {more} more like these") if more else some
    kinds = few_kinds(kinds_of(document.value for document in documents))
    return _Understood(file.data, objects, told, kinds, allowance.used)


def _notices(path: str, document: ReadDocument, kept: list[Document], left_out: tuple[str, ...]) -> Iterator[str]:
    """Return what of a document is left out, or read generously."""
    if not isinstance(document.value, dict | None):
        yield f"{clipped(path)} has {shown(document.value)} where an object should be; it is passed over"
    yield from (f"{clipped(path)}: {notice}" for notice in left_out)
    yield from _repeated(path, document) if kept else ()


def _repeated(path: str, document: ReadDocument) -> Iterable[str]:
    for key in document.repeated:
        yield f"{clipped(path)} line {key.line} has the key {shown(key.key)} again and the last one counts; remove one"


def _completed(fresh: _Fresh, last: FilesOfObjects) -> FilesOfObjects:
    """Complete what can be read by what was read last: of the broken files, and of what is nowhere to be found now.

    The latter is counted to the first broken file, so that it stays known until that file can be read.
    """
    now = {Identity.of(document) for listed in fresh.objects.values() for document in listed}
    missing = {path: tuple(document for document in last[path] if Identity.of(document) not in now) for path in last}
    first = min(fresh.broken)
    completed = dict(fresh.objects)
    for path, objects in missing.items():
        home = path if any(_within(path, broken) for broken in fresh.broken) else first
        if objects:
            completed[home] = (*completed.get(home, ()), *objects)
    return completed


def _within(path: str, broken: str) -> bool:
    return path == broken or path.startswith(f"{broken}/")
