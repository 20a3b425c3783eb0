"""The files of a directory of manifests: the objects in each, and why some can't be read.

A file with the bytes of the last reading isn't read again. Not here: what counts in place of a broken one (`reading`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path

from msgspec import Struct, field

from locallb.kubernetes.parsing.documents import DocumentError, ReadDocument, read_documents
from locallb.kubernetes.parsing.relevant import Document, kinds_of, relevant
from locallb.kubernetes.parsing.yaml_builder import Allowance
from locallb.model.formatting import clipped, shown
from locallb.model.texts import MAX_ALIASED, cleaned
from locallb.planning.left_out import added, few_kinds
from locallb.sources.manifests.certificates import certificate_references, without_references
from locallb.sources.readings import Objects, slim
from locallb.storage.folders import Folder, FolderFile

MAX_ALIASED_IN_ALL = 16 * MAX_ALIASED
"""Limit of characters that the aliases of all files expand to."""
_TEMPLATE = "it is a template: put here what `helm template` makes of it"
_MAX_NOTICES = 20
"""Limit of notices reported for one file."""


class ParsedFile(Struct, frozen=True):
    """One file: its bytes, and what they mean."""

    data: bytes
    objects: Objects
    notices: tuple[str, ...]
    kinds: Mapping[str, int]
    aliased: int
    """Characters that its aliases expand to."""


class FilesNow(Struct):
    """Current contents of the files."""

    understood: dict[str, ParsedFile] = field(default_factory=dict)
    """Each file that could be read."""
    objects: dict[str, Objects] = field(default_factory=dict)
    """The effective objects of each file; none of an emptied file."""
    broken: dict[str, str] = field(default_factory=dict)
    """The reason that a file or directory can't be read: half a sentence by path."""
    notices: list[str] = field(default_factory=list)
    kinds: Mapping[str, int] = field(default_factory=dict)
    """Number of objects, by kind."""


def understood_files(folder: Folder, before: Mapping[str, ParsedFile], directory: Path) -> FilesNow:
    """Split files into readable ones, with their objects, and broken ones; `before` has earlier results.

    `directory` is their location.
    """
    fresh = FilesNow()
    for link in folder.links:
        fresh.notices.append(f"{clipped(link)} is a link to a directory and isn't read; put the directory itself there")
    for link in folder.outside:
        fresh.notices.append(f"{clipped(link)} is a link out of its directory and isn't followed in a comparison")
    aliased = 0
    for file in folder.files:
        if file.why:
            fresh.broken[file.path] = f" can't be read ({file.why})"
            continue
        try:
            existing = before.get(file.path)
            understood = existing if existing and existing.data == file.data else _understood(file, aliased, directory)
        except DocumentError as error:
            line = f" line {error.line}" if error.line else ""
            what = _TEMPLATE if b"{{" in file.data else error.what
            fresh.broken[file.path] = f"{line} can't be read ({what})"
            continue
        aliased += understood.aliased
        fresh.understood[file.path] = understood
        fresh.objects[file.path] = understood.objects
        fresh.notices.extend(understood.notices)
    fresh.kinds = added(file.kinds for file in fresh.understood.values())
    return fresh


def _understood(file: FolderFile, aliased: int, directory: Path) -> ParsedFile:
    """Read a file; `aliased` is the size of earlier files' expanded aliases. Raises DocumentError."""
    allowance = Allowance(min(MAX_ALIASED, MAX_ALIASED_IN_ALL - aliased))
    documents = read_documents(file.data, is_json=file.path.endswith(".json"), allowance=allowance)
    sorted_out = [(document, *relevant([document.value])) for document in documents]
    written = without_references(document for _, retained, _ in sorted_out for document in retained)
    certificates = certificate_references((document.value for document in documents), str(directory / file.path))
    objects = tuple(slim(cleaned(document)) for document in (*written, *certificates))
    notices = (notice for entry in sorted_out for notice in _notices(file.path, *entry))
    first, more = tuple(islice(notices, _MAX_NOTICES)), sum(1 for _ in notices)
    shown = (*first, f"{clipped(file.path)}: and {more} more like these") if more else first
    kinds = few_kinds(kinds_of(document.value for document in documents))
    return ParsedFile(file.data, objects, shown, kinds, allowance.used)


def _notices(path: str, document: ReadDocument, retained: list[Document], left_out: tuple[str, ...]) -> Iterator[str]:
    """Return what of a document is left out, or read generously."""
    if not isinstance(document.value, dict | None):
        yield f"{clipped(path)} has {_sort_of(document.value)} where an object should be; it is passed over"
    yield from (f"{clipped(path)}: {notice}" for notice in left_out)
    yield from _repeated(path, document) if retained else ()


def _sort_of(value: object) -> str:
    """Describe a value that is no object without its content: it may be any file, and others may read reports."""
    return shown(value) if isinstance(value, list) else "a text" if isinstance(value, str) else "a single value"


def _repeated(path: str, document: ReadDocument) -> Iterable[str]:
    for key in document.repeated:
        yield f"{clipped(path)} line {key.line} has the key {shown(key.key)} again and the last one counts; remove one"
